"""Snapshots as rows of the table `snapshots`."""

import json
from datetime import datetime
from typing import Any

from shardpost.delta.snapshot import Counts, IncompleteLook, Snapshot
from shardpost.kafka.coordinates import Offsets

_TIMES = ("committed_at", "looked_at", "history_from")


def row_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as a row of its table."""
    form = snapshot.as_json()
    return form | {
        "committed_at": snapshot.committed_at,
        "looked_at": snapshot.looked_at,
        "end_offsets": json.dumps(form["end_offsets"]),
        "tables": json.dumps(form["tables"]),
        "held": snapshot.counts.held,
        "country": snapshot.country,
        "shards": snapshot.shards,
        "code_version": snapshot.code_version,
        "run": snapshot.run,
        "topic_ids": json.dumps(dict(snapshot.topic_ids)),
        "generations": json.dumps(dict(snapshot.generations)),
        "incomplete_look": _look_text(snapshot.incomplete),
        "folded": json.dumps(dict(snapshot.folded)),
        "erased_in": snapshot.erased_in,
        "history_from": snapshot.history_from,
        "folders": json.dumps(dict(snapshot.folders)) if snapshot.folders else None,
        "rebuilt_in": snapshot.rebuilt_in,
        "set_country": snapshot.set_country,
        "decoder": snapshot.decoder,
    }


def snapshot_of(row: dict[str, Any]) -> Snapshot:
    """Return the snapshot of a row."""
    return Snapshot(
        number=row["snapshot"],
        committed_at=row["committed_at"],
        looked_at=row["looked_at"],
        end_offsets=_offsets(json.loads(row["end_offsets"])),
        tables=json.loads(row["tables"]),
        counts=Counts(row["positions"], row["holders"], row["held"], row["rejected"]),
        code_version=row["code_version"],
        run=row["run"],
        country=row["country"],
        shards=row["shards"],
        topic_ids=json.loads(row["topic_ids"] or "{}"),
        generations=json.loads(row["generations"] or "{}"),
        incomplete=_look(row["incomplete_look"]),
        folded=json.loads(row["folded"] or "{}"),
        erased_in=row["erased_in"],
        history_from=row["history_from"],
        folders=json.loads(row["folders"] or "{}"),
        rebuilt_in=row["rebuilt_in"],
        set_country=row["set_country"],
        decoder=row.get("decoder"),  # rows of `rebuilds` of before have none
    )


def as_text(snapshot: Snapshot) -> str:
    """Return a snapshot as text, from which `of_text` makes it again."""
    return json.dumps(row_of(snapshot), default=datetime.isoformat)


def of_text(text: str) -> Snapshot:
    """Return the snapshot of a text."""
    row = json.loads(text)
    times = {name: row[name] and datetime.fromisoformat(row[name]) for name in _TIMES}
    return snapshot_of(row | times)


def _offsets(form: dict[str, dict[str, int]]) -> Offsets:
    return {
        topic: {int(partition): end for partition, end in partitions.items()}
        for topic, partitions in form.items()
    }


def _look_text(look: IncompleteLook | None) -> str | None:
    if look is None:
        return None
    times = {"at": look.at.isoformat(), "read_at": look.read_at.isoformat()}
    return json.dumps(times | {"ends": look.ends})


def _look(text: str | None) -> IncompleteLook | None:
    if text is None:
        return None
    form = json.loads(text)
    at, read_at = (datetime.fromisoformat(form[name]) for name in ("at", "read_at"))
    return IncompleteLook(at, _offsets(form["ends"]), read_at)
