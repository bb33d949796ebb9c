"""`shardpost topics`: the declared topics; and `lag`: how far their readers are behind."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from shardpost.checkout import SCHEMAS
from shardpost.commands import console
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, UsageError, one_line
from shardpost.installation import opened
from shardpost.wording import counted, duration_text

if TYPE_CHECKING:
    from shardpost.lag.model.time_to_loss import LagRow
    from shardpost.topics.model.finding import Finding


@click.group()
def topics_command() -> None:
    """Create, repair and audit the declared topics."""


@topics_command.command("apply")
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@console.YES
@console.AS_JSON
def apply_command(dry_run: bool) -> int:
    """Create missing declared topics, and repair what can be repaired without loss.

    What is not repaired is printed, with the reason and a command: exit code 3.
    """
    from shardpost.topics.creation import apply_topics

    installation = opened()
    if not dry_run and console.can_ask():
        planned = apply_topics(installation, dry_run=True)
        if any(one.created or one.plan.changes for one in planned):
            console.confirm("Do that?", lambda: [one.as_text() for one in planned])
    applied = apply_topics(installation, dry_run=dry_run)
    console.print_document(applied, lambda: "\n".join(one.as_text() for one in applied))
    return NEEDS_ATTENTION if any(one.plan.refusals for one in applied) else DONE


@topics_command.command("audit")
@console.AS_JSON
def audit_command() -> int:
    """Report every departure from what is declared or safe, with its fix; change nothing.

    Exit code 3 if data is lost or at risk.
    """
    from shardpost.watch.audit import audit

    found = audit(opened(), datetime.now(UTC))
    text = "no findings: everything is as declared"
    console.print_document(found, lambda: "\n".join(map(_finding_text, found)) or text)
    return NEEDS_ATTENTION if any(one.needs_attention for one in found) else DONE


@topics_command.command("register")
@console.REGISTRY
@console.AS_JSON
def register_command(url: str | None) -> None:
    """Register JSON Schemas with a schema registry, of the values that have a form of our own.

    Each becomes the newest of the subject `<topic>-value`, if it is not, and its id is printed. Not
    those of inputs, nor of letters and retries, whose values are those of others.
    """
    from shardpost.holders.inputs import registries, registry_of
    from shardpost.kafka.schema_registry import Schema
    from shardpost.topics.declared import OWN_VALUES

    installation = opened()
    found = registries(installation, url)
    if len(found) != 1:
        urls = ", ".join(one.url for one in found) or "none"
        raise UsageError(f"expected one registry, found {urls}: add --registry URL")
    ids = dict[str, int]()
    for name in (spec.name for spec in OWN_VALUES):
        text = (SCHEMAS / f"{name}.json").read_text()
        asked = registry_of(installation, name, found[0])
        ids[f"{asked.topic}-value"] = asked.register("value", Schema("JSON", text))
    console.print_document(ids, lambda: console.text_table(("subject", "id"), ids.items()))


def _finding_text(one: "Finding") -> str:
    where = f"topic {one.topic}: " if one.topic else ""
    lines = [
        f"{one.severity:<5}  {where}{one.setting}: {one.found} ({one.source})",
        f"expected: {one.expected}",
        f"why: {one.why}",
        f"fix: {one.fix}",
        f"more: {one.runbook}",
    ]
    return "\n       ".join(map(one_line, lines))


GROUPS = ("state", "group", "partitions", "records", "time behind", "time to loss", "why")
HEADING = ("time to loss", "group", "partition", "records", "time behind", "reason")


@click.command()
@click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="Only this group; repeatable."
)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; repeatable."
)
@click.option("--all", "with_own", is_flag=True, help="Also show Shardpost's own groups.")
@console.AS_JSON
def lag_command(groups: Sequence[str], topics: Sequence[str], with_own: bool) -> int:
    """Print a line for each consumer group: what is unread, and when that can be lost.

    LOSS: data is lost, or can be at any moment; WARN: it can be within SHARDPOST_LOSS_WARNING
    seconds, or a partition could not be queried; ?: a member has committed nothing yet. Shardpost's
    own groups are printed only if they are not OK, or with --all. With --group or --topic, their
    partitions follow; --json has all. Exit code 3 if data is lost already, or can be within
    SHARDPOST_LOSS_WARNING seconds; 1 if not everything could be queried.
    """
    from shardpost.lag.measure import measure
    from shardpost.lag.model.time_to_loss import Selection

    installation = opened()
    gc.disable()  # hundreds of thousands of rows, and then the process ends
    found = measure(installation, datetime.now(UTC), Selection(groups, topics))
    if (groups or topics) and not found.rows and not found.problems:
        raise ShardpostError(
            f"{', '.join((*groups, *topics))}: expected a group with a committed offset, and a"
            " topic that it reads, found none: `shardpost lag` lists all"
        )
    for problem in found.problems:
        click.echo(f"shardpost: unknown: {problem}", err=True)
    if found.others:
        click.echo(f"groups that are not consumer groups: {', '.join(found.others)}", err=True)
    console.print_document(
        found.rows,
        lambda: lag_text(
            found.rows,
            installation.settings.loss_warning,
            with_own=with_own or bool(groups),
            with_partitions=bool(groups or topics),
        ),
    )
    return found.exit_code(installation.settings.loss_warning)


def lag_text(
    rows: "Sequence[LagRow]", warning: float, *, with_own: bool, with_partitions: bool
) -> str:
    """Return a line for each group, what needs attention first; then partitions that can lose."""
    from shardpost.lag.measure import OWN_READERS

    of_group: dict[str, list[LagRow]] = {}
    for row in rows:
        of_group.setdefault(row.group, []).append(row)
    found = [GroupLag(name, _state(own, warning), own) for name, own in of_group.items()]
    shown = [one for one in found if with_own or one.state != "OK" or one.name not in OWN_READERS]
    shown.sort(key=lambda one: (one.name in OWN_READERS, STATES.index(one.state), one.name))
    text = [console.text_table(GROUPS, [one.cells() for one in shown])] if shown else []
    if not with_own and (own := [one.name for one in found if one not in shown]):
        text.append(f"{counted(len(own), 'group')} of Shardpost's own: OK (--all lists them)")
    losing = [row for row in rows if row.seconds_to_loss is not None or _is_unknown(row)]
    if with_partitions and losing:
        text.append(console.text_table(HEADING, [_cells(row) for row in losing]))
    return "\n".join(text) or "no reader has committed an offset"


STATES = ("LOSS", "WARN", "?", "OK")


@dataclass(frozen=True)
class GroupLag:
    """The partitions of one group; `rows` are those of it, soonest loss first."""

    name: str
    state: str
    rows: "Sequence[LagRow]"

    def cells(self) -> tuple[str, ...]:
        """Return the line of the group; why, of the partition that loses first."""
        first, behind = self.rows[0], sum(row.records_behind or 0 for row in self.rows)
        late = max((row.seconds_behind or 0 for row in self.rows), default=0)
        can_lose = first.seconds_to_loss is not None
        unknown = next(filter(_is_unknown, self.rows), None)
        named = first if can_lose else unknown
        known = (str(behind), _span(late))
        if unknown:
            known = (f"≥ {known[0]}", f"≥ {known[1]}") if behind else ("?", "?")
        return (
            *(self.state, self.name, str(len(self.rows)), *known),
            _span(first.seconds_to_loss) if can_lose else "?" if unknown else "",
            f"{named.topic}[{named.partition}]: {named.reason}" if named else "",
        )


def _state(rows: "Sequence[LagRow]", warning: float) -> str:
    if any(row.loses_within(0) for row in rows):
        return "LOSS"
    if any(row.loses_within(warning) or row.end is None for row in rows):
        return "WARN"
    return "?" if any(map(_is_unknown, rows)) else "OK"


def _is_unknown(row: "LagRow") -> bool:
    """Tell whether nobody knows how much of a partition, that is not empty, is unread."""
    return row.records_behind is None and row.end != 0


def _cells(row: "LagRow") -> tuple[str, ...]:
    where = f"{row.topic}[{row.partition}]"
    records = "?" if row.records_behind is None else str(row.records_behind)
    times = (_span(row.seconds_to_loss), _span(row.seconds_behind))
    return (times[0], row.group, where, records, times[1], row.reason)


def _span(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)
