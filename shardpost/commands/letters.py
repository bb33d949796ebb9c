"""`shardpost letters list`, `show` and `sweep`; for parked letters see parked_letters.py."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from shardpost.commands import console
from shardpost.commands.parked_letters import discard_command, redrive_command
from shardpost.dead_letters.model.letter_history import STATES, ListFilters
from shardpost.errors import DONE, harmless, one_line, shown, single_line
from shardpost.installation import opened
from shardpost.wording import counted

if TYPE_CHECKING:
    from shardpost.dead_letters.listed_letters import LetterGroup, ListedLetters

HEADING = ("state", "origin", "error", "letters", "since", "such as", "its error begins")
LONGEST_ERROR = 100
SEE = "docs/dead-letters.md: When something is wrong"


@click.group()
def letters_command() -> None:
    """Look after dead letters: waiting, retried, parked, redriven, discarded."""


letters_command.add_command(redrive_command)
letters_command.add_command(discard_command)


@letters_command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only letters in this state.")
@click.option("--origin", metavar="TOPIC", help="Only letters of this topic.")
@click.option("--error", metavar="FINGERPRINT", help="Only letters with this error.")
@click.option(
    "--since", type=console.INSTANT, metavar="TIME", help="Only letters changed since this time."
)
@click.option(
    "--until", type=console.INSTANT, metavar="TIME", help="Only letters changed before this time."
)
@console.AS_JSON
@console.grouped(ListFilters)
def list_command(filters: ListFilters) -> int:
    """List dead letters: counted by state, origin and error; as JSON one by one.

    Those that wait or are parked, and those that were resolved in the last 7 days; with --since
    or --until also older ones, as long as they are kept (SHARDPOST_LETTER_DAYS).

    Fails if `dead-letters` or `parking-lot` was recreated, lost records, or has another number of
    partitions or a wrong cleanup.policy (docs/stores.md).
    """
    from shardpost.dead_letters.letter_index import KeptIndex, open_index
    from shardpost.dead_letters.letter_topics import not_visible
    from shardpost.dead_letters.listed_letters import listed, listed_since
    from shardpost.topics.guards import inspect_stores

    installation = opened()
    inspect_stores(installation, "dead-letters", "parking-lot")
    now = datetime.now(UTC)
    index = open_index(installation, KeptIndex())
    found = listed(installation, index, filters, now)
    if console.wants_json():
        console.print_document(found.page(0, found.total)[::-1], str)
    else:
        text = list_text(found.groups(), found.due(now)) if found.total else None
        every = listed_since(installation, index, filters.closed_since(now))
        click.echo(text or _none_of(every, filters.error))
    for offsets in not_visible(installation.kafka):
        click.echo(f"not visible yet: {offsets}, after an open transaction ({SEE})", err=True)
    return DONE


def _none_of(every: "ListedLetters", error: str | None) -> str:
    """Return why no letter is listed: there is none, none with that error, or none that matches."""
    if not every.total:
        return "no letters"
    if error is not None and all(group.error != error for group in every.groups()):
        return one_line(f"no letter has the error {error}; `shardpost letters list` has all")
    return f"none of {counted(every.total, 'letter')} matches; `shardpost letters list` has all"


def list_text(groups: Sequence["LetterGroup"], due: int) -> str:
    """Return a line for each state, origin and error; then how many letters are due."""
    rows = [
        (
            *_key_of(one),
            one.letters,
            f"{one.oldest:%Y-%m-%d %H:%M:%S} UTC",
            one.such_as,
            first_line(one.said, LONGEST_ERROR),
        )
        for one in sorted(groups, key=_key_of)
    ]
    text = console.text_table(HEADING, rows)
    if not due:
        return text
    return f"{text}\n{counted(due, 'waiting letter is', 'waiting letters are')} due"


def _key_of(group: "LetterGroup") -> tuple[str, str, str]:
    return group.state, group.origin or "", group.error or ""


def first_line(error: str | None, longest: int) -> str:
    """Return the first line of a letter's error that says something."""
    lines = (line for line in (error or "").splitlines() if line.strip())
    return single_line(next(lines, ""), longest)


@letters_command.command("show")
@click.argument("letter_id", type=console.KEY, metavar="ID")
@console.AS_JSON
def show_command(letter_id: str) -> None:
    """Print one letter: its headers, its value, its history, and its retries."""
    from shardpost.dead_letters.letter_details import describe
    from shardpost.holders.readable_values import Readable, ReadableValues

    found = describe(installation := opened(), letter_id)
    details = found.as_json()
    value = ReadableValues(installation).read(found.record) if found.record else Readable(None)
    if value.kind:
        details |= {"form": value.kind, "read": value.json and value.json.decode()}
    console.print_document(details, lambda: _details_text(details))


def _details_text(details: dict[str, Any]) -> str:
    lines = [f"{shown(details['letter_id'])}: {details['state']}, {details['where']}"]
    lines += [one_line(f"  {name}: {value}") for name, value in details["headers"]]
    lines.append(_value_text(details))
    steps = [(one["at"], one["state"], one["attempt"]) for one in details["life"]]
    lines.append(console.text_table(("at", "state", "attempt"), steps))
    for retry in details["retries"]:
        sent = f"sent {retry['at']}, attempt {retry['attempt']}, {retry['where']}"
        is_same = retry["value"] == details["value"]
        lines.append(f"{sent}: {'the same value' if is_same else _value_text(retry)}")
    if details["decisions"]:
        rows = [(one["when"], one["kind"], one["who"], one["why"]) for one in details["decisions"]]
        lines.append(console.text_table(("when", "decision", "who", "why"), rows))
    return harmless("\n".join(lines))


def _value_text(details: dict[str, Any]) -> str:
    if details["size"] is None:
        return "value: none"
    form = f", {details['form']}" if "form" in details else ""
    return f"value ({details['size']} bytes{form}): {details.get('read') or details['value']}"


COUNTS = ("retried", "parked", "dropped", "waiting", "held", "taken_in")


@letters_command.command("sweep")
@console.AS_JSON
def sweep_command() -> int:
    """Run one sweep: retry dead letters whose backoff is over, park those that cannot be retried.

    Exit code 3 if a person has to act: letters were parked; or held, since they are too large to be
    parked; or letters of other frameworks were deleted unread, or could not be read.
    """
    from shardpost.dead_letters.sweep_job import SWEEP_DEAD_LETTERS, for_a_person
    from shardpost.spark.submit import submit

    code, result = submit(opened(), SWEEP_DEAD_LETTERS)
    if result is not None:
        counts = ", ".join(f"{result[name]} {name.replace('_', ' ')}" for name in COUNTS)
        console.print_document(result, lambda: "\n".join([counts, *for_a_person(result)]))
    return code
