"""A world of two compactions, with corrections of many kinds between its records.

Beside it: what is rejected, and the letter that a run made of it.
"""

import logging
from dataclasses import dataclass, field
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.holders.listed_holders import HoldersQuery, query_holders
from shardpost.holders.model.view_tables import POSITION_EVENTS
from shardpost.settings import Settings
from shardpost.values.topic_names import TopicName
from tests.support.compacting import run
from tests.support.installed import installed
from tests.support.reference import Raw, Retry, closed, position, produce, produce_retry

BAD = b'{"Client":"client1","Ticker":"T","Amount":"1,5","Exchange":"NASDAQ"}'
MENDED = b'{"Client":"client1","Ticker":"T","Amount":1.5,"Exchange":"NASDAQ"}'


def bad(key: bytes | None = b"1", value: bytes | None = BAD, topic: TopicName = "positions") -> Raw:
    return Raw(topic, key, value)


def place_of(settings: Settings, record: Raw) -> tuple[int, int]:
    """Send one record; return where it came to."""
    return produce(settings, [record])[id(record)]


def reasons(settings: Settings) -> list[str]:
    sql = "SELECT reason FROM position_events WHERE reason IS NOT NULL ORDER BY retry_offset"
    at = at_snapshot(snapshots.current(installed(settings).tables), POSITION_EVENTS)
    return [row["reason"] for row in rows(installed(settings).tables, sql, at)]


def done(result: dict[str, object]) -> dict[str, object]:
    names = ("rejected", "letters", "retries", "applied")
    return {name: result[name] for name in names if result[name]}


@dataclass(frozen=True)
class Corrected:
    """A world of two runs, each with the corrections of several tests, on keys of their own."""

    settings: Settings
    results: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    _records: dict[str, Raw] = field(default_factory=dict)

    def held(self, number: int) -> dict[str, list[str]]:
        """Return what is held at the snapshot of that number, 1 or 2."""
        snapshot = snapshots.list_all(installed(self.settings).tables)[number - 1]
        return query_holders(installed(self.settings).tables, snapshot, HoldersQuery())

    def send(self, name: str, record: Raw) -> None:
        """Send a record that is retried under this name."""
        self._records[name], self.places[name] = record, place_of(self.settings, record)

    def retry(self, name: str, value: bytes, key: bytes | None = None, **more: str) -> None:
        made = Retry(self._records[name], value)
        produce_retry(self.settings, made, self.places[name], key, **more)

    def retry_with_an_old_time(self, name: str, value: bytes) -> None:
        made = Retry(self._records[name], value, timestamp_ms=1_700_000_000_000)
        produce_retry(self.settings, made, self.places[name])

    def retry_under_other_keys(self, name: str, holder: str) -> None:
        for key in (holder.encode(), b"never seen", b"\xff"):
            self.retry(name, MENDED, key, origin_key=holder)

    def run(self) -> None:
        said: SimpleQueue[logging.LogRecord] = SimpleQueue()
        log, handler = logging.getLogger("shardpost"), QueueHandler(said)
        log.addHandler(handler)
        self.results.append(run(self.settings))
        log.removeHandler(handler)
        while not said.empty():
            self.said.append(said.get().getMessage())


WRONG: list[dict[str, str]] = [
    {"origin_partition": "9"},
    {"origin_partition": "x"},
    {"origin_offset": "1000"},
    {"origin_offset": "9" * 30},
    {"origin_offset": "-1"},
]


def mended(client: str) -> bytes:
    return MENDED.replace(b"client1", client.encode())


def send_records(world: Corrected) -> None:
    world.send("good", position("good", "of good", "NASDAQ"))
    produce(world.settings, [position("closed", "of closed", "NASDAQ")])
    for key in ("closed", "other origin", "twice at once", "twice", "at once", "later"):
        world.send(key, bad(key.encode()))
    produce(world.settings, [position("new", "of new", "NEW")])
    world.send("exchange", bad(b"NEW", b'{"Country":5}', "exchanges"))
    world.send("client", bad(b"of new", b"{", "clients"))
    world.send("misplaced", bad(b"misplaced"))
    for when in ("at once", "later"):
        for key in (f"newer {when}", f"closed {when}"):
            world.send(key, bad(key.encode()))
        produce(world.settings, [position(f"newer {when}", "of newer", "NASDAQ")])
        produce(world.settings, [closed(f"closed {when}")])
        for key in (f"holder {when}", f"good {when}"):
            world.send(key, position(key, f"of {key}", "NASDAQ"))


def correct_before_the_first_run(world: Corrected) -> None:
    world.retry("good", mended("another"))
    world.retry_with_an_old_time("twice at once", mended("first"))
    world.retry_with_an_old_time("twice at once", mended("second"))
    world.retry_with_an_old_time("twice", mended("first"))
    for more in WRONG:
        world.retry("misplaced", mended("of misplaced"), None, **more)
    for name in ("newer at once", "closed at once"):
        world.retry(name, MENDED)
    for name in ("at once", "good at once"):
        world.retry_under_other_keys(name, "holder at once")


def correct_before_the_second_run(world: Corrected) -> None:
    world.retry("good", mended("another"))
    world.retry("closed", b"", origin_null="true")
    world.retry("other origin", MENDED, origin_topic="orders")
    produce(world.settings, [Raw("retries", b"other origin", MENDED)])
    world.retry("exchange", b'{"Country":"US"}')
    world.retry("client", b'{"Name":"Ann","Subscribed":true}')
    world.retry_with_an_old_time("twice", mended("second"))
    world.retry("misplaced", mended("of misplaced"))
    for name in ("newer later", "closed later"):
        world.retry(name, MENDED)
    for name in ("later", "good later"):
        world.retry_under_other_keys(name, "holder later")
