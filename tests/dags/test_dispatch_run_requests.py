"""dispatch_run_requests: when it runs, and what its task does."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from airflow.models import DagModel, DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetDag, TriggerDagRun
from airflow.timetables.assets import AssetOrTimeSchedule
from airflow.utils.session import create_session
from sqlalchemy import delete, select, update

from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.orchestration.own_runs import OwnRuns
from shardpost.run_requests import dispatch as module
from shardpost.run_requests.airflow_api import AirflowRuns, NoAnswerError, StartsRuns
from shardpost.run_requests.model.commands import (
    AirflowRun,
    Command,
    CommandState,
    DispatchCounts,
)
from tests.dags.conftest import read_back

InTask = Callable[[Callable[[StartsRuns], Any]], Any]


def test_it_runs_when_a_request_waits_and_every_five_minutes(dag: Any) -> None:
    timetable = read_back(dag).timetable
    assert isinstance(timetable, AssetOrTimeSchedule)
    assert "*/5 * * * *" in timetable.timetable.summary
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    assert watcher.trigger.serialize() == ("shardpost_run_request_watch.RunRequestWatch", {})


def request_for(dag: str, **conf: object) -> Command:
    return Command("a key", CommandState.ISSUED, dag, conf, "anna", 0, f"request__{uuid4()}")


@pytest.fixture
def in_task(dag: Any, monkeypatch: pytest.MonkeyPatch) -> InTask:
    """Give a function that does something with the Airflow of a task, inside of a trial run."""

    def done_in_task(work: Callable[[StartsRuns], Any]) -> Any:
        results = []

        def dispatch(_: Installation, _now: datetime, own: StartsRuns) -> DispatchCounts:
            results.append(work(own))
            return DispatchCounts(issued=2, started=2)

        monkeypatch.setattr(module, "dispatch", dispatch)
        run = dag.test()
        assert run.state == "success"
        (task,) = run.get_task_instances()
        assert task.xcom_pull(task_ids="dispatch")["issued"] == 2
        return results[0]

    return done_in_task


def change(dag_id: str, **columns: object) -> None:
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == dag_id).values(**columns))


@pytest.mark.usefixtures("synced")
def test_a_run_is_started_once_without_a_login_and_seen_until_it_is_deleted(
    in_task: InTask,
) -> None:
    asked = request_for("weekly_email", week="2020-W01", dry_run=True)
    note = "run request 'a key', requested by anna"

    def started(own: StartsRuns) -> list[object]:
        before = own.run(asked.dag, asked.run_id)
        first = own.start(asked.dag, asked.run_id, asked.conf, note)
        again = own.start(asked.dag, asked.run_id, {"week": "2020-W02"}, note)
        return [before, first, again, own.run(asked.dag, asked.run_id)]

    assert in_task(started) == [None, None, None, AirflowRun("queued")]
    ended = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
    with create_session() as session:
        (run,) = session.scalars(select(DagRun).where(DagRun.run_id == asked.run_id))
        assert (run.conf, run.note) == (asked.conf, note)
        assert (run.run_type, run.logical_date) == ("operator_triggered", None)
        run.state, run.end_date = "failed", ended
    assert in_task(lambda own: own.run(asked.dag, asked.run_id)) == AirflowRun("failed", ended)
    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.run_id == asked.run_id))
    assert in_task(lambda own: own.run(asked.dag, asked.run_id)) is None


@pytest.mark.usefixtures("synced")
def test_what_airflow_rejects_has_its_reason_and_starts_nothing(
    in_task: InTask,
) -> None:
    asked = {
        "wrong": request_for("weekly_email", week="W47"),
        "unknown": request_for("no_such_dag"),
        "paused": request_for("compact_positions"),
        "stale": request_for("sweep_dead_letters"),
        "broken": request_for("import_positions"),
    }

    def rejections(own: StartsRuns) -> list[object]:
        change("compact_positions", is_paused=True)
        change("sweep_dead_letters", is_stale=True)
        change("import_positions", has_import_errors=True)
        found = [own.start(one.dag, one.run_id, one.conf, "") for one in asked.values()]
        return [*found, [own.run(one.dag, one.run_id) for one in asked.values()]]

    *reasons, runs = in_task(rejections)
    for (name, reason), expected in zip(
        zip(asked, reasons, strict=True),
        (
            "Airflow rejects the run: Invalid input for param week: week 'W47': expected",
            "Airflow has no DAG no_such_dag",
            "DAG compact_positions is paused in Airflow",
            "DAG sweep_dead_letters is stale in Airflow: no file defines it any more",
            "Airflow rejects the run: Dag with dag_id 'import_positions' has import errors",
        ),
        strict=True,
    ):
        assert str(reason).startswith(expected), (name, reason)
    assert runs == [None] * len(asked)


@pytest.mark.parametrize("status", [None, 502])
def test_an_airflow_that_does_not_answer_is_not_taken_for_one_without_the_run(
    status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    detail = {"status_code": status, "message": "connection refused"}

    class Comms:
        def send(self, _message: object) -> None:
            raise AirflowRuntimeError(ErrorResponse(detail=detail))

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    runs = AirflowRuns(OwnRuns())
    with pytest.raises(NoAnswerError, match="connection refused"):
        runs.find(request_for("weekly_email"))
    assert runs.unreachable


@pytest.mark.usefixtures("synced")
def test_a_dag_that_airflow_cannot_read_blocks_no_other(in_task: InTask) -> None:
    broken = select(SerializedDagModel).where(SerializedDagModel.dag_id == "import_positions")

    def unread_then_started(own: StartsRuns) -> list[object]:
        runs = AirflowRuns(own)
        with create_session() as session:
            kept = {stored: stored._data for stored in session.scalars(broken)}  # its versions
            for stored in kept:
                stored._data = {"__version": 3, "dag": {}}
        try:
            with pytest.raises(NoAnswerError, match="task API: 500 "):
                runs.start(request_for("import_positions", source="/a"), lambda: None)
        finally:
            with create_session() as session:
                for stored, data in kept.items():
                    session.merge(stored)._data = data
        asked = request_for("weekly_email", week="2020-W01", dry_run=True)
        return [runs.unreachable, len(runs.errors), runs.start(asked, lambda: None)]

    assert in_task(unread_then_started) == [None, 1, None]


def test_a_number_that_a_task_cannot_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Comms:
        def send(self, message: GetDag | TriggerDagRun) -> Any:
            msgspec.msgpack.encode(message.model_dump())  # as Airflow's own does
            return SimpleNamespace(is_paused=False)

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    asked = request_for("weekly_email", number=10**30)
    why = OwnRuns().start(asked.dag, asked.run_id, asked.conf, "")
    assert str(why).startswith("Airflow rejects the run: can't serialize ints")


def test_what_could_not_be_started_fails_the_task(
    dag: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dispatch(_: Installation, _now: datetime, _own: StartsRuns) -> DispatchCounts:
        raise ShardpostError("1 command is committed and not started")

    monkeypatch.setattr(module, "dispatch", dispatch)
    monkeypatch.setattr(dag.task_dict["dispatch"], "retries", 0)
    assert dag.test().state == "failed"
