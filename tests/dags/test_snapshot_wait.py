"""Waiting for a compaction: what a run of the weekly e-mail waits for, and what it starts."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import TriggerDagRun
from deltalake.exceptions import DeltaError

from shardpost.delta import snapshots
from shardpost.delta.storage import TableFormError
from shardpost.orchestration import snapshot_wait
from shardpost.orchestration.snapshot_wait import SnapshotTrigger, SnapshotWait
from shardpost.orchestration.tasks import RefusedError
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka, memory_kafka
from tests.support.week_tables import World

WEEK = IsoWeek.last_ended(datetime.now(UTC))
BEFORE, AFTER = WEEK.end - timedelta(hours=1), WEEK.end + timedelta(minutes=1)
MOST = timedelta(days=3)


HOUR = timedelta(hours=1)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with memory_kafka(partitions=4, kafka_timeout=30, home=tmp_path) as kafka:
        apply_topics(installed(kafka.settings))
        yield kafka


@pytest.fixture
def world(kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a world of tables, which is what the task finds."""
    own = installed(kafka.settings)
    monkeypatch.setattr(snapshot_wait, "task_installation", lambda *_: own)
    monkeypatch.setattr(snapshot_wait, "POLL_SECONDS", 0.01)
    return World(kafka.settings)


@dataclass
class OwnAirflow:
    """What a task learns of its Airflow; the DAGs whose runs it started."""

    is_paused: bool = False
    on_its_way: int = 0
    started: list[str] = field(default_factory=list)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    dag_id, run_id, task_id = "weekly_email", "by hand", "wait"

    @property
    def context(self) -> Any:
        return {"ti": self, "dag_run": SimpleNamespace(start_date=self.began)}

    def get_dr_count(self, dag: str, states: list[str]) -> int:
        assert (dag, states) == ("compact_positions", ["queued", "running"])
        return self.on_its_way

    def send(self, message: Any) -> Any:
        assert message.dag_id == "compact_positions"
        if isinstance(message, TriggerDagRun):
            self.started.append(message.dag_id)
        return SimpleNamespace(is_paused=self.is_paused)


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> OwnAirflow:
    airflow = OwnAirflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return airflow


@pytest.fixture
def alerted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the lines that people are alerted with."""
    said: list[str] = []
    monkeypatch.setattr(snapshot_wait, "alert_of_attention", lambda _, lines: said.extend(lines))
    return said


def wait(mode: Mode = Mode.FREEZE, week: IsoWeek = WEEK, **more: Any) -> SnapshotWait:
    return SnapshotWait(
        task_id="wait",
        request=lambda _: EmailRequest(week, mode=mode, **more),
        compaction="compact_positions",
        execution_timeout=MOST,
    )


def deferred(
    airflow: OwnAirflow, task: SnapshotWait, event: dict[str, Any] | None = None, **kwargs: Any
) -> TaskDeferred:
    """Return how a task waits."""
    context = airflow.context
    run = partial(task.execute, context)
    if event:
        run = partial(task.on_event, context, event, **kwargs)
    with pytest.raises(TaskDeferred) as waiting:
        run()
    assert waiting.value.method_name == "on_event"
    return waiting.value


def fired(trigger: Any, **changed: str) -> dict[str, Any]:
    """Return the event of a trigger, as Airflow recreates it."""
    path, given = trigger.serialize()
    assert path == "shardpost.orchestration.snapshot_wait.SnapshotTrigger"

    async def first() -> Any:
        return (await anext(SnapshotTrigger(**given | changed).run())).payload

    return dict(asyncio.run(asyncio.wait_for(first(), 30)))


def test_a_snapshot_that_has_the_week_is_not_waited_for(world: World, airflow: OwnAirflow) -> None:
    world.commit(looked_at=datetime.now(UTC))
    wait().execute(airflow.context)
    assert not airflow.started


@pytest.mark.parametrize("looked_at", [None, BEFORE, AFTER])
def test_a_compaction_is_started_and_waited_for(
    world: World, airflow: OwnAirflow, looked_at: datetime | None
) -> None:
    """AFTER: the week is in the snapshot, which is too old to show who has unsubscribed."""
    if looked_at:
        world.commit(looked_at=looked_at, committed_at=BEFORE)
    task = wait()
    waiting = deferred(airflow, task)
    assert airflow.started == ["compact_positions"]
    assert "run `shardpost compact`" in task.waits_for
    assert ". Started: compact_positions weekly_email__" in task.waits_for
    world.commit(looked_at=datetime.now(UTC))
    event = fired(waiting.trigger)
    assert event == {"behind": None}
    wait().on_event(airflow.context, event, **waiting.kwargs or {})


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"on_its_way": 1}, ". A run of compact_positions is queued or running"),
        ({"is_paused": True}, "was started: DAG compact_positions is paused in Airflow"),
    ],
)
def test_no_second_compaction_is_started_and_none_of_a_paused_dag(
    world: World, airflow: OwnAirflow, known: dict[str, Any], said: str
) -> None:
    world.commit(looked_at=BEFORE)
    task = wait()
    for name, value in known.items():
        setattr(airflow, name, value)
    deferred(airflow, task)
    assert task.waits_for.endswith(said)
    assert not airflow.started


def test_a_run_that_skips_its_week_does_not_wait(world: World, airflow: OwnAirflow) -> None:
    world.commit(looked_at=AFTER)  # the first snapshot, of after the week
    wait(is_scheduled=True).execute(airflow.context)
    assert not airflow.started


def test_a_dry_run_does_not_wait(world: World, airflow: OwnAirflow) -> None:
    world.commit(looked_at=BEFORE)
    wait(Mode.LIST_GROUPS).execute(airflow.context)
    assert not airflow.started


def test_an_early_run_waits_for_a_fresh_snapshot(world: World, airflow: OwnAirflow) -> None:
    world.commit(looked_at=BEFORE)
    deferred(airflow, wait(week=IsoWeek.of(datetime.now(UTC)), early=True))


def test_after_an_hour_people_are_alerted_once_and_after_days_it_fails(
    world: World, airflow: OwnAirflow, alerted: list[str]
) -> None:
    world.commit(looked_at=BEFORE)
    before = airflow.began
    first = deferred(airflow, wait())
    until = datetime.fromisoformat(first.trigger.serialize()[1]["until"])
    assert before + HOUR <= until <= datetime.now(UTC) + HOUR
    an_hour_ago = (datetime.now(UTC) - HOUR).isoformat()
    event = fired(first.trigger, until=an_hour_ago)
    assert str(WEEK) in event["behind"]
    second = deferred(airflow, wait(), event, since=an_hour_ago, alerts=0)
    assert second.kwargs == {"since": an_hour_ago, "alerts": 1}
    deferred(airflow, wait(), event, **second.kwargs)
    [line] = alerted
    assert "waiting for a compaction for 1 h" in line
    assert "run `shardpost compact` first" in line
    assert airflow.started == ["compact_positions"] * 3  # none was on its way any more
    days_ago = (datetime.now(UTC) - MOST).isoformat()
    with pytest.raises(AirflowFailException, match=r"no compaction for 3 d.*shardpost compact"):
        wait().on_event(airflow.context, event, since=days_ago, alerts=9)


def test_the_hour_and_the_days_are_counted_from_the_start_of_the_run_not_of_a_try(
    world: World, airflow: OwnAirflow, alerted: list[str]
) -> None:
    world.commit(looked_at=BEFORE)
    half, before = HOUR / 2, datetime.now(UTC)
    for waited, alerts, to_wait in [(half, 0, half), (HOUR + half, 1, HOUR)]:
        airflow.began = before - waited
        again = deferred(airflow, wait())
        assert again.kwargs == {"since": airflow.began.isoformat(), "alerts": alerts}
        until = datetime.fromisoformat(again.trigger.serialize()[1]["until"])
        assert before + to_wait <= until <= datetime.now(UTC) + to_wait
        assert len(alerted) == alerts
    airflow.began = before - MOST
    with pytest.raises(AirflowFailException, match=r"no compaction for 3 d"):
        wait().execute(airflow.context)


def test_a_compaction_that_comes_too_late_for_a_scheduled_run_fails_it(
    world: World, airflow: OwnAirflow
) -> None:
    """Without that, a week that was waited for would end as one that is skipped."""
    old = WEEK.previous
    world.commit(looked_at=datetime.now(UTC), committed_at=old.start)
    waited: Any = {"since": (old.end + HOUR).isoformat(), "alerts": 1}
    with pytest.raises(AirflowFailException, match=r"too late: week .* ended more than 3 days ago"):
        wait(week=old, is_scheduled=True).on_event(airflow.context, {"behind": None}, **waited)


def away(*_: object) -> None:
    """Do what a store does that is away."""
    raise DeltaError("Generic S3 error: error sending request for url (http://store:9000/b)")


AWAY = "object store: it does not answer: check that it is up"


def test_tables_that_are_away_are_waited_for(
    world: World, airflow: OwnAirflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(looked_at=datetime.now(UTC))
    task, looked, newest = wait(), [], snapshots.newest

    def look(tables: Any) -> Any:
        looked.append(tables)
        return away() if len(looked) < 3 else newest(tables)

    monkeypatch.setattr(snapshots, "newest", look)
    waiting = deferred(airflow, task)
    assert AWAY in task.waits_for
    assert fired(waiting.trigger) == {"behind": None}
    assert len(looked) == 3
    monkeypatch.setattr(snapshots, "committed_times", away)
    task = wait(is_scheduled=True)
    deferred(airflow, task, {"behind": None}, **waiting.kwargs or {})
    assert AWAY in task.waits_for


def test_a_refusal_that_no_wait_mends_fails_at_once(
    world: World, airflow: OwnAirflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.commit(looked_at=BEFORE)
    waiting = deferred(airflow, wait())

    def refuse(*_: object) -> None:
        raise TableFormError("snapshots: made by a newer version")

    monkeypatch.setattr(snapshots, "newest", refuse)
    event = fired(waiting.trigger)
    with pytest.raises(RefusedError, match="made by a newer version"):
        wait().on_event(airflow.context, event, **waiting.kwargs or {})
    with pytest.raises(RefusedError, match="made by a newer version"):
        wait().execute(airflow.context)
