"""`shardpost letters show`."""

import json
from typing import Any

import click

from shardpost.commands.options import AS_JSON, Key
from shardpost.commands.text_table import text_table
from shardpost.errors import DONE
from shardpost.printable import harmless, one_line


@click.command("show")
@click.argument("letter_id", type=Key(), metavar="ID")
@AS_JSON
def show_command(letter_id: str, as_json: bool) -> int:
    """Print one letter: its headers, its value, its life so far, and its retries."""
    from shardpost.dead_letters.letter_details import describe
    from shardpost.settings import load

    details = describe(load(), letter_id).as_json()
    click.echo(json.dumps(details) if as_json else _as_text(details))
    return DONE


def _as_text(details: dict[str, Any]) -> str:
    lines = [f"{details['letter_id']}: {details['state']}, {details['where']}"]
    lines += [one_line(f"  {name}: {value}") for name, value in details["headers"]]
    lines.append(_value(details))
    steps = [(step["at"], step["state"], _attempt(step["attempt"])) for step in details["life"]]
    lines.append(text_table(("at", "state", "attempt"), steps))
    for retry in details["retries"]:
        sent = f"sent {retry['at']}, attempt {retry['attempt']}, {retry['where']}"
        is_same = retry["value"] == details["value"]
        lines.append(f"{sent}: {'the same value' if is_same else _value(retry)}")
    if details["decisions"]:
        rows = [(one["when"], one["kind"], one["who"], one["why"]) for one in details["decisions"]]
        lines.append(text_table(("when", "decision", "who", "why"), rows))
    return harmless("\n".join(lines))


def _value(details: dict[str, Any]) -> str:
    if details["size"] is None:
        return "value: none"
    return f"value ({details['size']} bytes): {details['value']}"


def _attempt(number: int | None) -> str:
    return "" if number is None else str(number)
