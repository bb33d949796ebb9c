"""`shardpost letters sweep`."""

import json
from typing import Any

import click

from shardpost.commands.options import AS_JSON
from shardpost.errors import COULD_NOT

COUNTS = ("retried", "parked", "dropped", "waiting", "held", "taken_in")


@click.command("sweep")
@AS_JSON
def sweep_command(as_json: bool) -> int:
    """Send what is due to its retry topic, park what no retry can help, once.

    Exit code 3: somebody has to look: letters were parked, by origin and error; or held: too many
    of one error (SHARDPOST_RETRY_FLOOD), or too large to be parked; or letters of Kafka Connect or
    Spring Kafka were gone, or could not be read.
    """
    from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS
    from shardpost.settings import load
    from shardpost.spark.submit import submit

    code, result = submit(load(), SWEEP_DEAD_LETTERS, [])
    if result is None:
        return code or COULD_NOT
    click.echo(json.dumps(result) if as_json else _as_text(result))
    return code


def _as_text(result: dict[str, Any]) -> str:
    from shardpost.dead_letters.model.sweep_result import for_a_person

    counts = ", ".join(f"{result[name]} {name.replace('_', ' ')}" for name in COUNTS)
    return "\n".join([counts, *for_a_person(result)])
