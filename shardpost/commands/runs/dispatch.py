"""`shardpost runs dispatch`: what the DAG dispatch_run_requests does, by hand."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON
from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.settings import load


@click.command("dispatch")
@AS_JSON
def dispatch_command(as_json: bool) -> int:
    """Decide on all requests, and start their runs.

    Frees the keys of ended runs first, as the DAG dispatch_run_requests does.

    Exit code 1 if a command could not be started: it is committed, and the next dispatch starts it.
    Exit code 3 if Kafka deleted requests before they were read.
    """
    from shardpost.embedded.airflow_home import with_login
    from shardpost.run_requests.dispatch import dispatch

    counts = dispatch(with_login(load()), datetime.now(UTC))
    click.echo(json.dumps(vars(counts)) if as_json else counts.in_words())
    return NEEDS_ATTENTION if counts.lost else DONE
