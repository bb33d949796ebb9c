"""A large home: from nothing, 100,000 more, a fold, and the audience of a week, by sizes.

A fifth as many positions as records, a fifth as many clients as positions, each with a contact.
"""

import json
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from bench import kafka, stream
from bench.emails import contacts
from bench.measured import Measured
from bench.ours import Ours, parts
from bench.spark_tasks import by_part, with_event_log
from bench.stream import Record
from shardpost.holders.model.view_tables import FoldingRule
from shardpost.kafka.reading import read_to_end
from shardpost.kafka.records import TopicPartition
from shardpost.settings import Settings
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.installed import installed

MORE = 100_000
POSITIONS, CLIENTS = 5, 25  # a fifth, a twenty-fifth of the records
NOBODY = -1
MB = 10**6
# {what was measured: value}, one for each size.
Found = dict[str, float]


def measure(settings: Settings, sizes: Sequence[int], memory: str) -> None:
    """Measure homes of so many records, each compared with a plain fold; print one table of all."""
    own = with_event_log(settings)
    Ours(own, "ours-warm-up", "warm-up").warm_up()
    found = {size: _Home(own, size, memory).measured() for size in sizes}
    names = dict.fromkeys(name for one in found.values() for name in one)
    print("\n|  | " + " | ".join(f"{size:,} records" for size in sizes) + " |")
    print("| --- |" + " --- |" * len(sizes))
    for name in names:
        cells = (f"{one[name]:,.1f}" if name in one else "" for one in found.values())
        print(f"| {name} | {' | '.join(cells)} |")


class _Home:
    """The tables of so many records, as they come to be, and what that took."""

    def __init__(self, settings: Settings, size: int, memory: str) -> None:
        self._settings, self._size = settings, size
        self._topic = f"scale-{size}"
        self._ours = Ours(settings, f"ours-{self._topic}", self._topic)
        self._ours.settings = self._ours.settings.model_copy(update={"driver_memory": memory})
        self._stream = stream.endless(size, size // CLIENTS)
        self._held = array("i", [NOBODY]) * (size // POSITIONS)
        self._found: Found = {}

    def measured(self) -> Found:
        """Measure all; topic and tables stay until the next time."""
        print(f"{self._size:,} records", flush=True)
        kafka.delete(self._settings, [self._topic])
        kafka.create(self._settings, self._topic)
        self._ours.reset()
        began = time.perf_counter()
        self._produce(self._size)
        self._note("producing, s", time.perf_counter() - began)
        clients, at = self._ours.settings.topic("clients"), stream.START_MS
        kafka.produce(self._settings, clients, contacts(self._size // CLIENTS, "C{:06d}", at))
        self._note("Kafka, positions and clients, MB", self._topic_bytes(self._topic, clients))
        self._compact("from nothing")
        self._check()
        self._produce(MORE)
        self._compact(f"{MORE:,} more")
        if (missing := round(FoldingRule.share * self._size / POSITIONS) - MORE) > 0:
            self._produce(missing)
            self._ours.compact()
        self._produce(MORE // 100)
        self._compact("folding")
        self._check()
        self._freeze()
        return self._found

    def _produce(self, count: int) -> None:
        records = self._noting(islice(self._stream, count))
        kafka.produce(self._settings, self._topic, records)

    def _noting(self, records: Iterator[Record]) -> Iterator[Record]:
        """Pass records on, and keep who holds each position after them."""
        for record in records:
            key, value, _ = record
            client = NOBODY
            if value and value.rsplit('"', 2)[1] in stream.COUNTING:
                client = int(value.split('"Client":"C', 1)[1].split('"', 1)[0])
            self._held[int(key)] = client
            yield record

    def _compact(self, name: str) -> None:
        self._measure(name, self._ours.compact)

    def _freeze(self) -> None:
        now = datetime.now(UTC)
        request = EmailRequest(IsoWeek.of(now - timedelta(weeks=1)), now, Mode.FREEZE)
        self._measure("freezing a week", lambda: self._ours.job(WEEKLY_EMAIL, request))

    def _measure(self, name: str, run: Callable[[], Measured]) -> None:
        """Run, and note what it took and which files it made."""
        before = self._files()
        done = run()
        new = {path: size for path, size in self._files().items() if path not in before}
        self._note(f"{name}, s", done.seconds)
        self._note(f"{name}, s of the processor", done.processor)
        for part, seconds in parts(done.log).items():
            self._note(f"{name}: {part}, s", seconds)
        for process in ("java", "python"):
            self._note(f"{name}: peak of {process}, MiB", done.peaks[process])
        uses = by_part(self._settings, done.log)
        for part, use in uses.items():
            print(f"    {part}: {use}", flush=True)
        self._note(f"{name}: most memory of a task, MiB", max(u.memory for u in uses.values()))
        self._note(f"{name}: new files", len(new))
        self._note(f"{name}: new files, MB", sum(new.values()) / MB)
        self._note(f"{name}: largest file, MB", max(new.values()) / MB)
        self._note(f"{name}: shuffled, MB", sum(use.shuffled for use in uses.values()))
        self._note(f"{name}: spilled, MB", sum(use.spilled for use in uses.values()))

    def _note(self, name: str, value: float) -> None:
        self._found[name] = value
        print(f"  {name}: {value:,.1f}", flush=True)

    def _files(self) -> dict[Path, int]:
        root = Path(self._ours.settings.tables_root)
        return {path: path.stat().st_size for path in root.rglob("*.parquet")}

    def _topic_bytes(self, *topics: str) -> float:
        data = self._settings.home / "kafka" / "data"
        logs = (log for topic in topics for log in data.glob(f"{topic}-[0-9]*/*.log"))
        return sum(log.stat().st_size for log in logs) / MB

    def _check(self) -> None:
        """Hold the topic of holders against who holds after all records."""
        topic, found = self._ours.settings.topic("share-holders"), array("i", [NOBODY])
        found *= len(self._held)
        for partition in range(kafka.PARTITIONS):
            lists: dict[bytes, bytes | None] = {}
            for message in read_to_end(
                installed(self._settings).kafka, TopicPartition(topic, partition)
            ):
                lists[message.key() or b""] = message.value()
            for value in filter(None, lists.values()):
                form = json.loads(value)
                for position in map(int, form["Positions"]):
                    if found[position] != NOBODY:
                        raise RuntimeError(f"position {position} has two holders")
                    found[position] = int(form["Client"][1:])
        if found != self._held:
            wrong = sum(a != b for a, b in zip(found, self._held, strict=True))
            raise RuntimeError(f"{wrong} of {len(found)} positions have another holder")
        print(f"  {len(found):,} positions, exact", flush=True)
