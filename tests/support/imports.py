"""Lists of positions that are imported in this process, and what they are to come to."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shardpost.decisions import Kind, decisions_topic
from shardpost.imports.import_job import find_source
from shardpost.imports.model.list_format import TARGETS
from shardpost.imports.model.source import ImportRequest
from shardpost.imports.run import import_list
from shardpost.kafka.records import Record
from shardpost.settings import Settings
from tests.support.installed import installed
from tests.support.letter_world import committed

COLUMNS = TARGETS["positions"].columns
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
Row = Mapping[str, str]


def row(key: str, client: str, exchange: str = "NASDAQ", amount: str = "1") -> dict[str, str]:
    """Return a row of a list."""
    values = (key, client, "T", amount, exchange)
    return dict(zip(COLUMNS, values, strict=True))


def csv_of(path: Path, rows: Sequence[Row]) -> Path:
    """Write a list as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]] if rows else COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def run_import(
    settings: Settings, source: Path | str, *, code: int = 0, apply: bool = True, **more: Any
) -> dict[str, Any]:
    """Import a list in this process, which is to end with that code."""
    where = {name: more.pop(name) for name in ("table", "query", "profile") if name in more}
    request = ImportRequest(
        find_source(str(source), **where), "somebody", is_applied=apply, now=NOW, **more
    )
    found, result = import_list(installed(settings), request)
    assert found == code, result
    return result


def records(settings: Settings) -> list[Record]:
    """Return the records of imports that readers of committed records see."""
    found = committed(settings, settings.topic("positions"))
    return [record for record in found if _import_id(record)]


def import_ids(settings: Settings) -> set[str | None]:
    """Return the import ids of all records of imports."""
    return {_import_id(record) for record in records(settings)}


def _import_id(record: Record) -> str | None:
    found = [value for name, value in record.headers if name == "import-id"]
    return found[0].decode() if found and isinstance(found[0], bytes) else None


def decided(settings: Settings) -> list[str]:
    """Return the ids of the imports that are on record."""
    since = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        decision.about.decode()
        for decision, _ in decisions_topic.list_since(installed(settings).kafka, since)
        if decision.kind is Kind.IMPORTED
    ]


def state(settings: Settings) -> dict[str, Any]:
    """Return what a reader of `positions` knows: {key: value of the last good record}."""
    found: dict[str, Any] = {}
    for record in committed(settings, settings.topic("positions")):
        key = (record.key or b"").decode()
        if record.value is None:
            found.pop(key, None)
        else:
            found[key] = json.loads(record.value)
    return found


def after(before: Mapping[str, Any], rows: Iterable[Row]) -> dict[str, Any]:
    """Return {key: values} after a list: the reference, in a few lines."""
    by_key: dict[str, list[Row]] = defaultdict(list)
    for one in rows:
        by_key[one["PositionId"]].append(one)
    found = {key: form for key, form in before.items() if key in by_key}
    for key, of_key in by_key.items():
        values = {tuple(map(one.__getitem__, COLUMNS)) for one in of_key}
        if len(values) == 1 and all(map(_is_good, of_key)):
            found[key] = {**of_key[0], "Amount": float(of_key[0]["Amount"])}
    return found


def _is_good(one: Row) -> bool:
    return all(one[name] for name in COLUMNS) and one["Amount"].isdecimal()
