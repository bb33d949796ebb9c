"""The lists of the last dry run of each week, kept for who looks at them page by page.

Files beside the tables: a folder per week and run, in it one per group of shards, in that a file
of Parquet per list, and `result.json`, which is written last. They have addresses and holdings, so
they go with the audience of the week, and all of them when a client is erased: a dry run is soon
made again.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from shardpost.delta import snapshots, storage
from shardpost.delta.table import Table
from shardpost.errors import UsageError
from shardpost.instants import parse_instant
from shardpost.settings import Settings
from shardpost.weekly_email.dry_run_lists import DryRunList
from shardpost.weekly_email.model.email_request import PreparedWeek, shard_text
from shardpost.weekly_email.model.week import IsoWeek

# No table of Delta's, but where one would be.
FOLDER = Table("dry_runs", ())
RESULT = "result.json"
# Lines that are read together: a page is in one or two such groups.
GROUP = 2_000
_SCHEMA = pa.schema([("client", pa.string()), ("line", pa.string())])
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class KeptDryRun:
    """A dry run: of which week and shards, when it was made, as which run; how long its lists are.

    `compared_with` is the week that `new` and `left` are in comparison with, None if with none.
    """

    week: str
    run: str
    made_at: datetime
    snapshot: int
    compared_with: str | None
    counts: Mapping[str, int]
    shards: Sequence[str]
    folders: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object, without where its files are."""
        known = {name: value for name, value in vars(self).items() if name != "folders"}
        return {**known, "made_at": self.made_at.isoformat()}


def keep(
    settings: Settings, week: PreparedWeek, run: str, lists: Path, result: Mapping[str, Any]
) -> None:
    """Keep the lists of a run, which are in that folder, in place of those of the week's others.

    Not if a client was erased since the week was prepared: it may be in them.
    """
    name, shards = str(week.iso_week), shard_text(week.shards)
    folder = f"{name}/{_NOT_IN_NAMES.sub('-', run)}"
    for other in _folders(settings, name):
        if other != folder:
            storage.delete_folder(settings, FOLDER, other)
    part = f"{folder}/{_NOT_IN_NAMES.sub('-', shards)}"
    system, path = storage.folder(settings, FOLDER, part)
    if not settings.is_on_store:
        system.create_dir(path, recursive=True)
    for kind in DryRunList:
        _write(system, f"{path}/{kind}", lists / kind)
    document = {**result, "run": run, "shards": shards}
    with system.open_output_stream(f"{path}/{RESULT}") as file:
        file.write(json.dumps(document).encode())
    if snapshots.current(settings).erased_in != week.snapshot.erased_in:
        storage.delete_folder(settings, FOLDER, part)


def _write(system: fs.FileSystem, path: str, lines: Path) -> None:
    with (
        lines.open() as source,
        pq.ParquetWriter(path, _SCHEMA, filesystem=system, compression="zstd") as file,
    ):
        while some := [*islice(source, GROUP)]:
            texts = [line.rstrip("\n") for line in some]
            clients = [_client(json.loads(text)) for text in texts]
            file.write_table(pa.table([clients, texts], schema=_SCHEMA), GROUP)


def _client(line: Any) -> str:
    return str(line if isinstance(line, str) else line["client"])


def find(settings: Settings, week: IsoWeek) -> KeptDryRun | None:
    """Return the last dry run of a week, by the groups of shards that are done; None if none is."""
    documents = {}
    for run in _folders(settings, str(week)):
        for part in _folders(settings, run):
            system, path = storage.folder(settings, FOLDER, part)
            info = system.get_file_info(f"{path}/{RESULT}")
            if info.type == fs.FileType.File:
                with system.open_input_stream(info.path) as file:
                    documents[part] = json.loads(file.read())
    if not documents:
        return None
    parts = sorted(documents, key=lambda part: _first_shard(documents[part]))
    newest = max(documents.values(), key=lambda document: str(document["made_at"]))
    own = [part for part in parts if documents[part]["run"] == newest["run"]]
    counts = {
        str(kind): sum(documents[part]["counts"][kind] for part in own) for kind in DryRunList
    }
    return KeptDryRun(
        *(str(week), newest["run"], parse_instant(newest["made_at"]), newest["snapshot"]),
        *(newest["compared_with"], counts, [documents[part]["shards"] for part in own], own),
    )


def _first_shard(document: Mapping[str, Any]) -> int:
    return int(re.split("[-,]", document["shards"])[0])


def page(
    settings: Settings, kept: KeptDryRun, kind: DryRunList, first: int, most: int, search: str = ""
) -> tuple[int, list[Any]]:
    """Return how many lines of a list have a client with that in its id; some, from one on."""
    total, lines = 0, list[Any]()
    for file in _files(settings, kept, kind):
        rows = _rows_with(file, search)
        start = max(0, first - total)
        chosen = rows[start : start + most - len(lines)]
        total += len(rows)
        if len(chosen):
            lines += _lines_of(file, chosen)
    return total, lines


def all_lines(settings: Settings, kept: KeptDryRun, kind: DryRunList, search: str) -> Iterator[Any]:
    """Yield all lines of a list that have a client with that in its id."""
    for file in _files(settings, kept, kind):
        for batch in file.iter_batches(GROUP):
            those = batch.filter(_matches(batch.column("client"), search))
            yield from map(json.loads, those.column("line").to_pylist())


def _files(settings: Settings, kept: KeptDryRun, kind: DryRunList) -> Iterator[pq.ParquetFile]:
    for folder in kept.folders:
        system, path = storage.folder(settings, FOLDER, folder)
        yield pq.ParquetFile(f"{path}/{kind}", filesystem=system)


def _rows_with(file: pq.ParquetFile, search: str) -> Sequence[int]:
    if not search:
        return range(file.metadata.num_rows)
    clients = file.read(["client"]).column("client")
    return list(pc.indices_nonzero(_matches(clients, search)).to_pylist())


def _matches(clients: pa.Array | pa.ChunkedArray, search: str) -> pa.Array | pa.ChunkedArray:
    return pc.match_substring(clients, search)


def _lines_of(file: pq.ParquetFile, rows: Sequence[int]) -> Iterator[Any]:
    """Yield the lines with those numbers; only the groups that they are in are read."""
    groups = sorted({row // GROUP for row in rows})
    lines = file.read_row_groups(groups, ["line"]).column("line").to_pylist()
    at = {group: number * GROUP for number, group in enumerate(groups)}
    for row in rows:
        yield json.loads(lines[at[row // GROUP] + row % GROUP])


def forget(settings: Settings, weeks: Iterable[str] | None = None) -> None:
    """Delete the lists of these weeks, or of all."""
    for week in _folders(settings, "") if weeks is None else weeks:
        storage.delete_folder(settings, FOLDER, week)


def forget_old(settings: Settings, now: datetime, days: float) -> None:
    """Delete the lists of the weeks that ended more than so many days ago."""
    for name in _folders(settings, ""):
        with suppress(UsageError):  # a folder that is named for no week is not ours
            if now - IsoWeek.parse(name).end > timedelta(days=days):
                forget(settings, [name])


def _folders(settings: Settings, inside: str) -> list[str]:
    """Return the folders within one, by their paths below all."""
    system, path = storage.folder(settings, FOLDER, inside)
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    names = (info.base_name for info in infos if info.type == fs.FileType.Directory)
    return sorted(f"{inside}/{name}" if inside else name for name in names)
