"""`shardpost holders`, `explain` and `snapshots`: what one snapshot says."""

from collections.abc import Iterator
from datetime import UTC, datetime

import click

from shardpost.commands.console import AS_JSON, INSTANT, KEY, SNAPSHOT, print_document, text_table
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import one_line, shown
from shardpost.installation import opened


@click.command()
@click.argument("client", required=False, type=KEY)
@click.option("--shard", type=int, metavar="N", help="Only clients in this shard.")
@click.option("--as-of", "as_of", type=INSTANT, metavar="TIME", help="ISO 8601; no zone: UTC.")
@SNAPSHOT
@AS_JSON
def holders_command(
    client: str | None, shard: int | None, as_of: datetime | None, number: int | None
) -> None:
    """Print who holds US stock (of SHARDPOST_COUNTRY): each client with its positions.

    As of a TIME: only records with an earlier timestamp count. Warns on standard error if no record
    names the client, or if the snapshot does not cover the time.
    """
    from shardpost import tables
    from shardpost.holders.queries import not_covered, why_no_holder

    snapshot = tables.snapshot(number)
    found = tables.holders(client, shard, as_of, snapshot.number)
    if said := not_covered(snapshot.as_known(datetime.now(UTC)), as_of):
        click.echo(said, err=True)
    unknown = None
    if client is not None and not found:
        unknown = why_no_holder(opened().tables, snapshot, client, shard)
    if unknown is not None:
        click.echo(one_line(unknown), err=True)
    print_document(found, lambda: "" if unknown else _holders_text(found, client))


def _holders_text(found: dict[str, list[str]], client: str | None) -> str:
    if not found:
        return "nobody" if client is None else f"{shown(client)} holds none"
    return text_table(
        ("client", "positions"),
        [(client, ", ".join(map(shown, ids))) for client, ids in found.items()],
    )


TRANSITIONS_HEADING = ("position", "change", "record", "timestamp", "why")


@click.command()
@click.argument("client", type=KEY)
@click.argument("position", required=False, type=KEY)
@SNAPSHOT
@AS_JSON
def explain_command(client: str, position: str | None, number: int | None) -> None:
    """Print which records added or removed each of CLIENT's positions.

    A position of the client that never counted is listed with its latest record, and why.
    """
    from shardpost import tables
    from shardpost.holders.queries import pruned, why_no_record

    snapshot = tables.snapshot(number)
    found = tables.explain(client, position, snapshot.number)
    if said := pruned(snapshot):
        click.echo(said, err=True)
    if not found:
        click.echo(one_line(why_no_record(opened().tables, snapshot, client, position)), err=True)
    times = (one.timestamp.isoformat(timespec="milliseconds") for one in found)
    rows = [
        (one.position, one.change, one.coordinates, at, one.why)
        for one, at in zip(found, times, strict=True)
    ]
    print_document(found, lambda: text_table(TRANSITIONS_HEADING, rows) if rows else "")


COUNTED = ("positions", "holders", "rejected")
SNAPSHOTS_HEADING = ("snapshot", "who holds", "committed at", "looked at", "end offsets", *COUNTED)


@click.command()
@AS_JSON
def snapshots_command() -> None:
    """List the snapshots that can be queried, oldest first.

    `looked at` is when a compaction last read the input topics to their ends; `end offsets` is the
    sum over all input partitions.
    """
    from shardpost import tables

    found = tables.snapshots()
    print_document(found, lambda: "\n".join(_snapshots_text(found)))


def _snapshots_text(found: list[Snapshot]) -> Iterator[str]:
    if not found:
        from shardpost.embedded.stack import hint_at_other_home

        yield f"no snapshot yet: run `shardpost compact`{hint_at_other_home(opened().settings)}"
        return
    yield text_table(SNAPSHOTS_HEADING, [_snapshot_row(snapshot) for snapshot in found])
    if (at := found[-1].history_from) is not None:
        yield f"the newest snapshot has the whole history from {_minute(at)} on"


def _snapshot_row(snapshot: Snapshot) -> tuple[object, ...]:
    read = sum(sum(ends.values()) for ends in snapshot.end_offsets.values())
    counts, times = snapshot.counts, (_minute(snapshot.committed_at), _minute(snapshot.looked_at))
    numbers = (read, counts.positions, counts.holders, counts.rejected)
    return (snapshot.number, one_line(snapshot.rule.name), *times, *numbers)


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
