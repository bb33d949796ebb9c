"""`shardpost letters`: dead letters, what becomes of them, and what a person decides about them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import click

from shardpost.commands.options import AS_JSON, Instant, Key
from shardpost.commands.text_table import text_table
from shardpost.domain.dealing import State
from shardpost.domain.letter_life import Step
from shardpost.errors import COULD_NOT

STATES = [str(state) for state in State if state is not State.DROPPED]
COUNTS = ("state", "origin", "error", "letters", "oldest", "such as")


@click.group()
def command() -> None:
    """Look after dead letters: waiting, retried, parked, redriven, discarded."""


@command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only letters that stand there.")
@click.option("--origin", metavar="TOPIC", help="Only letters of that topic.")
@click.option("--error", metavar="FINGERPRINT", help="Only letters of that error.")
@click.option("--since", type=Instant(), metavar="TIME", help="Only what came there since then.")
@click.option("--until", type=Instant(), metavar="TIME", help="Only what came there before.")
@AS_JSON
def list_command(as_json: bool, **asked: Any) -> int:
    """Print where all letters stand: counted by state, origin and error; as JSON one by one."""
    from shardpost.adapters.letters_table import standing
    from shardpost.settings import load

    found = [step for step in standing(load()).values() if _is_asked(step, asked)]
    found.sort(key=lambda step: (step.at, step.id))
    if as_json:
        click.echo(json.dumps([step.as_json() for step in found]))
    else:
        click.echo(_counted(found))
    return 0


@command.command("show")
@click.argument("letter_id", type=Key(), metavar="ID")
@AS_JSON
def show_command(letter_id: str, as_json: bool) -> int:
    """Print one letter: its headers, its value, and its life so far."""
    from shardpost.adapters.letter_store import describe
    from shardpost.settings import load

    found = describe(load(), letter_id)
    click.echo(json.dumps(found) if as_json else _in_words(found))
    return 0


@command.command("sweep")
@AS_JSON
def sweep_command(as_json: bool) -> int:
    """Send what is due to its retry topic, park what is beyond help, once.

    Exit code 3: done, and letters were held (SHARDPOST_RETRY_FLOOD).
    """
    from shardpost.adapters.spark_submit import submit
    from shardpost.settings import load

    code, result = submit(load(), "sweep_dead_letters", [])
    if result is None:
        return code or COULD_NOT
    click.echo(json.dumps(result) if as_json else _swept(result))
    return code


def _is_asked(step: Step, asked: dict[str, Any]) -> bool:
    return (
        asked["state"] in (None, str(step.state))
        and asked["origin"] in (None, step.origin_topic)
        and asked["error"] in (None, step.fingerprint)
        and (asked["since"] is None or step.at >= asked["since"])
        and (asked["until"] is None or step.at < asked["until"])
    )


def _counted(found: list[Step]) -> str:
    if not found:
        return "no letters"

    def group(step: Step) -> tuple[str, str, str]:
        return str(step.state), step.origin_topic or "", step.fingerprint or ""

    rows = []
    for key, members in groupby(sorted(found, key=group), group):
        letters = list(members)
        oldest = min(letters, key=lambda step: step.at)
        rows.append((*key, str(len(letters)), _time(oldest.at), oldest.id))
    due = sum(step.due is not None and step.due <= datetime.now(UTC) for step in found)
    text = text_table(COUNTS, rows)
    return f"{text}\n{due} of those that wait are due" if due else text


def _in_words(found: dict[str, Any]) -> str:
    lines = [f"{found['letter_id']}: {found['state']}, {found['where']}"]
    lines += [f"  {name}: {value}" for name, value in found["headers"]]
    lines.append(f"value ({found['size']} bytes): {found['value']}")
    steps = [(step["at"], step["state"], str(step["attempt"])) for step in found["life"]]
    return "\n".join([*lines, text_table(("at", "state", "attempt"), steps)])


def _swept(result: dict[str, Any]) -> str:
    names = ("retried", "parked", "dropped", "waiting", "held", "taken_in")
    counts: Iterable[str] = (f"{result[name]} {name.replace('_', ' ')}" for name in names)
    text = ", ".join(counts)
    held = ", ".join(result["held_errors"])
    return f"{text}\ntoo many letters of one error, held: {held}" if held else text


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
