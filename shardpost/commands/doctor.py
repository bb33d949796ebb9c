"""`shardpost doctor`: what is wrong on this machine, and how to cure it."""

import json
from datetime import UTC, datetime

import click

from shardpost.commands.options import AS_JSON
from shardpost.doctor.finding import Finding, exit_code
from shardpost.printable import one_line
from shardpost.settings import load


@click.command()
@AS_JSON
def command(as_json: bool) -> int:
    """Check this machine, the settings, Kafka, the tables, the mail server and Airflow.

    Starts nothing and changes nothing. Exit code 3 if something needs attention.
    """
    from shardpost.doctor.examination import examine

    found = examine(load, datetime.now(UTC))
    if as_json:
        click.echo(json.dumps([one.as_json() for one in found]))
    else:
        click.echo(_in_words(found))
    return exit_code(found)


def _in_words(found: list[Finding]) -> str:
    width = max(len(one.check) for one in found)
    return "\n".join(line for one in found for line in _lines(one, width))


def _lines(one: Finding, width: int) -> list[str]:
    """Return a line with what was found, and below it what was expected, and the cure."""
    more = {"expected": one.expected, "cure": one.cure}
    indented = " " * (9 + width)
    return [
        f"{one.state:<7}  {one.check:<{width}}  {one_line(one.found)}",
        *(f"{indented}  {name}: {one_line(text)}" for name, text in more.items() if text),
    ]
