"""`shardpost letters list`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import click

from shardpost.commands.letters.grouped_options import grouped
from shardpost.commands.options import AS_JSON, Instant
from shardpost.commands.text_table import text_table
from shardpost.dead_letters.model.letter_format import OPEN, LetterState
from shardpost.dead_letters.model.letter_history import Step
from shardpost.errors import DONE
from shardpost.printable import one_line

STATES = [str(state) for state in LetterState if state is not LetterState.DROPPED]
# Others are listed that were dealt with in that time: so long `retries` has what became of them.
RECENT = timedelta(days=7)
HEADING = ("state", "origin", "error", "letters", "since", "such as")
SEE = "docs/dead-letters-operations.md: When something is wrong"


@dataclass(frozen=True)
class ListFilters:
    """Which letters are listed; None lists all, of those that were dealt with the recent ones."""

    state: str | None
    origin: str | None
    error: str | None
    since: datetime | None
    until: datetime | None

    def closed_since(self, now: datetime) -> datetime | None:
        """Return since when a letter that is listed was dealt with; None: whenever."""
        if self.state in OPEN:
            return now
        if self.since is None and self.until is None:
            return now - RECENT
        return self.since

    def matches(self, step: Step) -> bool:
        """Tell whether a letter with that newest step is listed."""
        return (
            self.state in (None, str(step.state))
            and self.origin in (None, step.origin_topic)
            and self.error in (None, step.fingerprint)
            and (self.since is None or step.at >= self.since)
            and (self.until is None or step.at < self.until)
        )


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only letters in this state.")
@click.option("--origin", metavar="TOPIC", help="Only letters of this topic.")
@click.option("--error", metavar="FINGERPRINT", help="Only letters with this error.")
@click.option(
    "--since", type=Instant(), metavar="TIME", help="Only letters that changed state since then."
)
@click.option(
    "--until", type=Instant(), metavar="TIME", help="Only letters that changed state before then."
)
@AS_JSON
@grouped(ListFilters)
def list_command(filters: ListFilters, as_json: bool) -> int:
    """List letters: counted by state, origin and error; as JSON one by one.

    Those that wait or are parked, and those that were dealt with in the last 7 days; with --since
    or --until also older ones, as long as they are kept (SHARDPOST_LETTER_DAYS).

    Refused while a topic of letters is not what it was (docs/stores.md).
    """
    from shardpost import tables
    from shardpost.dead_letters.letters_table_offsets import not_visible
    from shardpost.settings import load
    from shardpost.topics.stores import inspect_stores

    settings = load()
    inspect_stores(settings, "dead-letters", "parking-lot")
    now = datetime.now(UTC)
    every = tables.letters(settings, closed_since=filters.closed_since(now))
    found = [step for step in every if filters.matches(step)]
    if as_json:
        click.echo(json.dumps([step.as_json() for step in found]))
    else:
        click.echo(_as_text(found, now) if found else _none_of(every, filters.error))
    for offsets in not_visible(settings):
        click.echo(f"not visible yet: {offsets}, behind an open transaction ({SEE})", err=True)
    return DONE


def _none_of(every: Sequence[Step], error: str | None) -> str:
    """Return why no letter is listed: there is none, none with that error, or none that matches."""
    if not every:
        return "no letters"
    if error is not None and all(step.fingerprint != error for step in every):
        return one_line(f"no letter has the error {error}; `shardpost letters list` has all")
    return f"none of {len(every)} letters matches; `shardpost letters list` has all"


def _as_text(found: Sequence[Step], now: datetime) -> str:
    rows = []
    for key, members in groupby(sorted(found, key=_group), _group):
        letters = list(members)
        oldest = min(letters, key=lambda step: step.at)
        rows.append((*key, str(len(letters)), f"{oldest.at:%Y-%m-%d %H:%M:%S} UTC", oldest.id))
    text = text_table(HEADING, rows)
    due = sum(step.due is not None and step.due <= now for step in found)
    if not due:
        return text
    return f"{text}\n{due} waiting {'letter is' if due == 1 else 'letters are'} due"


def _group(step: Step) -> tuple[str, str, str]:
    return str(step.state), step.origin_topic or "", step.fingerprint or ""
