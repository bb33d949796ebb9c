"""The option `--by`: who requests or releases a run."""

import click

BY = click.option("--by", metavar="NAME", help="Who does this; by default the user's login name.")
