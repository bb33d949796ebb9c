"""Random interleavings of requests, dispatches, ends, deletions and crashes, beside a plain model.

The dispatch is the real one, on topics and an Airflow in memory. A crash breaks it off as a named
step begins; then it dispatches again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from shardpost.decisions import Kind
from shardpost.decisions import decode as decode_decision
from shardpost.kafka.records import Outgoing, Record
from shardpost.run_requests import dispatch as dispatch_module
from shardpost.run_requests import request_topics
from shardpost.run_requests.airflow_api import AirflowApi, AirflowRuns, AirflowUnreachableError
from shardpost.run_requests.dispatch import PartitionDispatch
from shardpost.run_requests.model.commands import AirflowRun, CommandEntry, decode, fold
from shardpost.run_requests.model.requests import RequestRules
from shardpost.settings import load
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.run_requests import STEPS

SETTINGS = load({})
START = datetime(2026, 11, 21, tzinfo=UTC)
KEYS = ("a", "a", "b")


class CrashError(Exception):
    """The process dies here."""


@dataclass
class World:
    """One partition's topics, an Airflow, a clock."""

    now: datetime = START
    asked: list[Record] = field(default_factory=list)
    commands: list[tuple[bytes, bytes | None, datetime]] = field(default_factory=list)
    decisions: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    committed: int | None = None
    runs: dict[str, AirflowRun] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    down: bool = False
    crash_at: str | None = None

    def tick(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now

    # Airflow

    def run(self, _dag: str, run: str) -> AirflowRun | None:
        self._require_up()
        return self.runs.get(run)

    def start(self, dag: str, run: str, _conf: dict[str, Any], _note: str) -> str | None:
        self._require_up()
        if dag == "paused":
            return "DAG paused is paused"
        if run not in self.runs:
            self.runs[run] = AirflowRun("running")
            self.started.append(run)
        return None

    def _require_up(self) -> None:
        if self.down:
            raise AirflowUnreachableError("down")

    # Kafka

    def entries(self) -> Iterator[CommandEntry]:
        for key, value, at in self.commands:
            entry = decode(key, value, at)
            assert entry is not None
            yield entry

    def commit(self, writes: Sequence[Outgoing], offset: int | None = None) -> None:
        for write in writes:
            if write.topic == "run-commands":
                self.commands.append((write.key or b"", write.value, self.tick()))
            else:
                self.decisions.append((write.key or b"", write.value))
        if offset is not None:
            self.committed = offset

    def step(self, name: str, **_: int) -> None:
        if name == self.crash_at:
            self.crash_at = None
            raise CrashError(name)

    @contextmanager
    def plugged_in(self) -> Iterator[None]:
        writer = SimpleNamespace(
            open=lambda: None,
            close=lambda: None,
            has_committed_within=lambda _seconds: True,
            committed_offset=lambda: self.committed,
            commit=self.commit,
        )
        topics: dict[str, Any] = {
            "command_entries": lambda *_: self.entries(),
        }
        own: dict[str, Any] = {
            "BATCH_REQUESTS": 2,
            "CommandWriter": lambda *_: writer,
            "watermark_of": lambda *_, **__: (0, len(self.asked)),
            "read_to_end": lambda *_, start, **__: self.asked[start:],
            "record_of": lambda record: record,
        }
        with (
            mock.patch.multiple(request_topics, **topics),
            mock.patch.multiple(dispatch_module, step=self.step, **own),
        ):
            yield

    def dispatch(self) -> None:
        rules = RequestRules(frozenset({"dag", "paused"}), timedelta(days=6), 1, self.now)
        with self.plugged_in():
            PartitionDispatch(
                installed(SETTINGS), 0, AirflowRuns(cast(AirflowApi, self)), rules
            ).run()


@dataclass
class Model:
    """What has to come of it, said plainly: {key: [payload, run or None, ended at]}."""

    pending: list[tuple[str, bytes, datetime]] = field(default_factory=list)
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    outcomes: list[str] = field(default_factory=list)
    started: int = 0

    def dispatch(self, *, down: bool) -> None:
        pending, self.pending = self.pending, []
        for key, value, at in pending:
            self.outcomes.append(self._outcome(key, value, at, down=down))
        for key in [k for k, h in self.held.items() if h["free_from"] and not down]:
            self._free(key)
        for key, hold in list(self.held.items()):
            if hold["state"] == "issued" and not down:
                if b"paused" in hold["value"]:
                    self.outcomes.append("refused")
                    del self.held[key]
                else:
                    hold["state"] = "started"
                    self.started += 1

    def _outcome(self, key: str, value: bytes, at: datetime, *, down: bool) -> str:
        if value == b"?":
            return "refused"
        hold = self.held.get(key)
        if hold and (down or not hold["free_from"] or at < hold["free_from"]):
            return "already" if hold["value"] == value else "conflict"
        if hold:
            self._free(key)
        self.held[key] = {"value": value, "state": "issued", "free_from": None}
        return "won"

    def _free(self, key: str) -> None:
        if self.held.pop(key)["free_from"] == START:  # it was deleted
            self.outcomes.append("released")


VALUES = (
    b'{"Dag":"dag","Conf":{"x":1}}',
    b'{"Dag":"dag","Conf":{"x":2}}',
    b'{"Dag":"paused"}',
    b"?",
)
ASK = st.tuples(st.just("ask"), st.sampled_from(KEYS), st.sampled_from(VALUES))
END = st.tuples(st.sampled_from(["end", "delete"]), st.sampled_from(KEYS), st.none())
DISPATCH = st.tuples(
    st.just("dispatch"), st.booleans(), st.lists(st.sampled_from(STEPS), max_size=3)
)


RUNNING = [("ask", "a", VALUES[0]), ("dispatch", False, [])]


@settings(max_examples=up_to(400, quick=100))
@given(st.lists(st.one_of(ASK, ASK, END, DISPATCH), max_size=30))
def test_any_interleaving_ends_as_the_plain_model_says(events: list[tuple[str, Any, Any]]) -> None:
    world, model = World(), Model()
    for event in [*RUNNING, *events]:
        _ACTIONS[event[0]](world, model, event)
        _agree(world, model)
    _dispatch(world, model, ("dispatch", False, []))
    _agree(world, model)
    assert world.committed == len(world.asked)


def _ask(world: World, model: Model, event: tuple[str, Any, Any]) -> None:
    _, key, value = event
    at = world.tick()
    timestamp_ms = round(at.timestamp() * 1000)
    record = Record(key.encode(), value, [], timestamp_ms, "run-requests", 0, len(world.asked))
    world.asked.append(record)
    model.pending.append((key, value, at))


def _end(world: World, model: Model, event: tuple[str, Any, Any]) -> None:
    """End or delete the run of a key that has started, if it has one on its way."""
    what, key, _ = event
    entry = fold(world.entries()).get(key)
    if key not in model.held or model.held[key]["state"] != "started" or entry is None:
        return
    assert entry.command is not None
    if what == "end" and not model.held[key]["free_from"]:
        at = world.tick()
        world.runs[entry.command.run_id] = AirflowRun("success", at)
        model.held[key]["free_from"] = at
    elif what == "delete":
        world.runs.pop(entry.command.run_id, None)
        model.held[key]["free_from"] = START


def _dispatch(world: World, model: Model, event: tuple[str, Any, Any]) -> None:
    _, down, crashes = event
    world.down = down
    world.tick()
    for step in crashes:
        world.crash_at = step
        try:
            world.dispatch()
        except CrashError:
            continue
    world.crash_at = None
    world.dispatch()
    model.dispatch(down=down)


_ACTIONS: dict[str, Callable[[World, Model, tuple[str, Any, Any]], None]] = {
    "ask": _ask,
    "end": _end,
    "delete": _end,
    "dispatch": _dispatch,
}


def _agree(world: World, model: Model) -> None:
    held = fold(world.entries())
    assert {key: str(entry.command and entry.command.state) for key, entry in held.items()} == {
        key: hold["state"] for key, hold in model.held.items()
    }
    assert len(world.started) == len(set(world.started)) == model.started
    found = [decision for one in world.decisions if (decision := decode_decision(*one))]
    for kind in (Kind.CONFLICT, Kind.REFUSED, Kind.RELEASED):
        assert sum(one.kind is kind for one in found) == model.outcomes.count(str(kind)), kind
