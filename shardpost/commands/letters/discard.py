"""`shardpost letters discard`."""

import click

from shardpost.commands.letters.redrive_or_discard import (
    ParkedOptions,
    parked_options,
    redrive_or_discard,
)


@click.command("discard")
@parked_options
def discard_command(options: ParkedOptions) -> int:
    """Give parked letters up for good: print the plan, or do it with --apply.

    Exit code 3: done, and some of those named by --id were refused.
    """
    return redrive_or_discard(options, options.request(is_redrive=False))
