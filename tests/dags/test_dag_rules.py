"""What holds for whole DAGs: options of their tasks by a setting, deadlines, the heartbeat."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.jobs.triggerer_job_runner import TriggerRunnerSupervisor
from airflow.models import DagModel, DagRun, Deadline
from airflow.sdk.api.client import ServerResponseError
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.request_handlers import handle_get_dag_run_state
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import delete, select, update

from shardpost.alerts.notifier import resolve
from shardpost.checkout import DAGS
from shardpost.installation import Installation
from shardpost.settings import load, loading
from tests.dags.conftest import read_back, states
from tests.support.airflow_environment import ENVIRON


def parsed(name: str) -> DagBag:
    return DagBag(dag_folder=DAGS / f"{name}.py")


def error_of(name: str) -> str:
    [error] = parsed(name).import_errors.values()
    return str(error).strip().splitlines()[-1]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that sets SHARDPOST_TASK_OPTIONS."""

    def set_options(found: object) -> None:
        text = found if isinstance(found, str) else json.dumps(found)
        monkeypatch.setenv("SHARDPOST_TASK_OPTIONS", text)
        loading._of_this_process.cache_clear()

    return set_options


@pytest.mark.parametrize("name", sorted(file.stem for file in DAGS.glob("*.py")))
def test_each_task_of_each_dag_runs_where_the_setting_says(name: str, options: Any) -> None:
    places = {"queue": "spark", "executor_config": {"pod_template_file": "/spark.yaml"}}
    own = {"pool": "own", "priority_weight": 5, "executor": "LocalExecutor"}
    options({"*": places, name: own})
    for task in read_back(parsed(name).dags[name]).tasks:
        assert (task.queue, task.pool, task.priority_weight) == ("spark", "own", 5), task.task_id
        assert task.executor_config == {"pod_template_file": "/spark.yaml"}, task.task_id
        assert task.executor == "LocalExecutor", task.task_id


def test_what_is_said_of_a_task_counts_before_its_dag_and_that_before_all(
    options: Any, tmp_path: Path
) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(
        "'*': {queue: all, priority_weight: 2}\n"
        "weekly_email: {queue: mail}\nweekly_email.send: {queue: send, pool: smtp}\n"
    )
    options(str(file))
    tasks = {
        one.task_id: one for one in read_back(parsed("weekly_email").dags["weekly_email"]).tasks
    }
    assert {name: one.queue for name, one in tasks.items()} == dict.fromkeys(tasks, "mail") | {
        "send": "send"
    }
    assert (tasks["send"].pool, tasks["report"].pool) == ("smtp", "default_pool")
    assert {one.priority_weight for one in tasks.values()} == {2}
    [other] = read_back(parsed("maintain_tables").dags["maintain_tables"]).tasks
    assert other.queue == "all"


WRONG = {
    '{"weekly_emial": {"queue": "q"}}': "no DAG or task weekly_emial: did you mean weekly_email?",
    '{"weekly_emial.send": {}}': "no DAG or task weekly_emial.send: did you mean weekly_email?",
    '{"weekly_email.sent": {}}': "no DAG or task weekly_email.sent: did you mean weekly_email.send",
    '{"weekly_email": {"quue": "q"}}': "weekly_email: no option quue: did you mean queue?",
    '{"weekly_email": {"retries": 5}}': "weekly_email: no option retries; expected one of executor",
    '{"weekly_email.send": {"pool": 7}}': "weekly_email.send: pool: expected a text, found 7",
    '{"weekly_email": {"priority_weight": true}}': "expected a whole number, found True",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_name_breaks_its_own_dag_alone(text: str, options: Any) -> None:
    options(text)
    assert f"UsageError: SHARDPOST_TASK_OPTIONS: {WRONG[text]}" in error_of("weekly_email") or (
        WRONG[text] in error_of("weekly_email")
    )
    for name in ("compact_positions", "watch_kafka"):
        assert parsed(name).import_errors == {}, name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"nonsense": {}}', "no DAG or task nonsense; expected one of compact_positions"),
        ('{"*": ', "expected YAML or JSON"),
        ('{"*": 7}', "expected a map such as"),
        ("/no/such/file", "/no/such/file: cannot be read: No such file or directory"),
    ],
)
def test_what_is_of_no_dag_breaks_each(text: str, why: str, options: Any) -> None:
    options(text)
    for name in ("weekly_email", "watch_kafka"):
        assert why in error_of(name)


def test_a_wrong_entry_of_a_named_installation_fails_its_tasks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "us.env").write_text('SHARDPOST_TASK_OPTIONS={"*": {"quue": "spark"}}\n')
    (tmp_path / "de.env").write_text(f"SHARDPOST_HOME={tmp_path}/de\n")
    both = f"us={tmp_path}/us.env de={tmp_path}/de.env"
    monkeypatch.setenv("SHARDPOST_INSTALLATIONS", both)
    loading._of_this_process.cache_clear()
    done: list[object] = []
    monkeypatch.setattr("shardpost.maintenance.maintain.maintain_all", done.append)
    found = parsed("maintain_tables")
    assert found.import_errors == {}
    run = found.dags["us_maintain_tables"].test()
    assert states(run) == {"maintain": "failed"}
    assert done == []
    send: Any = parsed("weekly_email").dags["us_weekly_email"].task_dict["send"]
    assert "pre_execute" in send.partial_kwargs
    for name, dag in {**found.dags, **parsed("weekly_email").dags}.items():
        assert len(read_back(dag).tasks) == len(dag.tasks)
        refused = [one for one in dag.tasks if "quue" in str(vars(one).get("pre_execute"))]
        assert bool(refused) == name.startswith("us_"), name


@pytest.mark.usefixtures("synced")
@pytest.mark.parametrize("name", sorted(file.stem for file in DAGS.glob("*.py")))
def test_a_param_that_a_dag_does_not_have_fails_its_first_task_before_it_does_anything(
    name: str, alerts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag: Any = parsed(name).dags[name]
    known = ", ".join(dag.params) or "none"
    done: list[object] = []
    for task in dag.roots:
        monkeypatch.setattr(type(task), "execute", done.append)
    run = dag.test(run_conf={"weak": "2026-W47"})
    assert {states(run)[task.task_id] for task in dag.roots} == {"failed"}
    assert {one.try_number for one in run.get_task_instances() if one.state == "failed"} == {1}
    assert done == []
    assert f": weak: no such param; expected {known}" in alerts.read_text()


DEADLINES = {
    "compact_positions": timedelta(hours=1),
    "sweep_dead_letters": timedelta(hours=1),
    "dispatch_run_requests": timedelta(minutes=30),
    "weekly_email": timedelta(hours=12),
}


def test_deadlines_follow_the_schedules(bag: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        name: [one.interval for one in dag.deadline]
        for name, dag in bag.dags.items()
        if dag.deadline
    }
    assert found == {name: [interval] for name, interval in DEADLINES.items()}
    monkeypatch.setenv("SHARDPOST_COMPACT_SCHEDULE", "0 6,18 * * *")
    dag: Any = parsed("compact_positions").dags["compact_positions"]
    [alert] = dag.deadline
    assert alert.interval == timedelta(hours=12, minutes=30)


@pytest.fixture
def none_left() -> Iterator[None]:
    """End all alerts that a test leaves."""
    yield
    resolve(Installation(load(ENVIRON)), lambda _: True, datetime.now(UTC))
    with create_session() as session:  # other tests count the runs
        for run in session.scalars(select(DagRun).where(DagRun.run_id.startswith("late__"))):
            session.delete(run)


def missed(name: str, state: str) -> Any:
    """Let the deadline of a new run of a DAG pass; return the callback's data in the triggerer."""
    from airflow.models.dagbag import DBDagBag

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(name, session=session)
        assert dag is not None
        now = datetime.now(UTC)
        run = dag.create_dagrun(
            run_id=f"late__{now.timestamp()}",
            run_after=now,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.QUEUED,
            session=session,
        )
        assert run.queued_at is not None
        run.state = DagRunState(state)
        session.flush()
        [deadline] = session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id))
        assert deadline.deadline_time - run.queued_at == DEADLINES[name]
        deadline.handle_miss(session)
        return deadline.callback.trigger.kwargs


async def _events(kwargs: Any) -> list[Any]:
    from airflow.triggers.callback import CallbackTrigger

    return [event.payload["state"] async for event in CallbackTrigger(**kwargs).run()]


@pytest.mark.usefixtures("synced", "none_left")
@pytest.mark.parametrize("name", DEADLINES)
def test_a_late_run_is_alerted_by_the_triggerer(name: str, alerts: Path) -> None:
    assert asyncio.run(_events(missed(name, "running"))) == ["running", "success"]
    said = alerts.read_text()
    assert f"firing (risk) deadline-missed of {name}\n" in said
    assert " is running, and was queued at 2" in said
    assert "expected to end within" in said


@pytest.mark.usefixtures("synced", "none_left")
@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_run_that_has_ended_is_not_late(state: str, alerts: Path) -> None:
    assert asyncio.run(_events(missed("sweep_dead_letters", state))) == ["running", "success"]
    assert not alerts.exists()


class TriggererComms:
    """Answers what a trigger asks, by the triggerer's own client of the task API."""

    def send(self, message: Any) -> Any:
        client = TriggerRunnerSupervisor.make_client(cast(Any, None))
        try:
            return handle_get_dag_run_state(client, message)[0]
        except ServerResponseError as error:
            detail = {"status_code": error.response.status_code, "detail": error.response.json()}
            raise AirflowRuntimeError(ErrorResponse(detail=detail)) from None


@pytest.mark.usefixtures("synced", "none_left")
@pytest.mark.parametrize("now", ["queued", "success", "failed", None])
def test_only_a_run_that_is_still_late_is_alerted(
    now: str | None, alerts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", TriggererComms(), raising=False)
    found = missed("sweep_dead_letters", "running")
    run_id = found["callback_kwargs"]["context"]["dag_run"]["dag_run_id"]
    with create_session() as session:
        of_run = DagRun.run_id == run_id
        session.execute(
            update(DagRun).where(of_run).values(state=now) if now else delete(DagRun).where(of_run)
        )
    assert asyncio.run(_events(found)) == ["running", "success"]
    assert alerts.exists() == (now == "queued")
    assert now != "queued" or f"run {run_id} is queued, and was" in alerts.read_text()


@pytest.mark.usefixtures("synced", "none_left")
def test_a_week_that_is_skipped_ends_the_alert(
    bag: Any, alerts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skipped(*_: object, **__: object) -> dict[str, Any]:
        return {"week": "2020-W46", "groups": [], "skipped": "the week is closed"}

    weekly = bag.dags["weekly_email"]
    monkeypatch.setattr(type(weekly.task_dict["freeze"]), "execute", skipped)
    asyncio.run(_events(missed("weekly_email", "running")))
    run = weekly.test(run_conf={"week": "2020-W46"}, mark_success_pattern="wait")
    assert run.state == "success"
    assert {one.state for one in run.get_task_instances() if one.task_id != "wait"} == {
        "success",
        "skipped",
    }
    assert "resolved (risk) deadline-missed of weekly_email\n" in alerts.read_text()


@pytest.mark.usefixtures("synced", "none_left")
def test_the_next_run_that_succeeds_ends_the_alert(
    bag: Any, alerts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardpost.run_requests import dispatch as module
    from shardpost.run_requests.model.commands import DispatchCounts

    def dispatch(*_: object) -> DispatchCounts:
        return DispatchCounts()

    monkeypatch.setattr(module, "dispatch", dispatch)
    asyncio.run(_events(missed("dispatch_run_requests", "running")))
    assert bag.dags["dispatch_run_requests"].test().state == "success"
    assert "resolved (risk) deadline-missed of dispatch_run_requests\n" in alerts.read_text()


def test_a_dag_with_a_deadline_that_did_not_change_has_one_version(synced: None, bag: Any) -> None:
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models.dag_version import DagVersion

    def versions() -> int:
        with create_session() as session:
            return len([*session.scalars(select(DagVersion.id))])

    before = versions()
    sync_bag_to_db(bag, "dags-folder", None)
    assert versions() == before
    with create_session() as session:
        assert session.get(DagModel, "compact_positions") is not None


class Beats(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.server.seen.append((self.command, self.path, self.rfile.read(size)))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    do_POST = do_GET  # noqa: N815 - by its base

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def service() -> Iterator[Any]:
    """Give a service that is requested: what it has seen, and what it answers."""
    server: Any = HTTPServer(("127.0.0.1", 0), Beats)
    server.seen, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that runs watch_kafka, which finds nothing, with a heartbeat to a URL."""
    from shardpost.alerts.notifier import Notified
    from shardpost.watch import watch
    from shardpost.watch.model.conditions import Observations

    monkeypatch.setattr(watch, "watch_once", lambda *_: watch.Watched(Observations(), Notified()))

    def run(url: str) -> Any:
        monkeypatch.setenv("SHARDPOST_HEARTBEAT_URL", url)
        loading._of_this_process.cache_clear()
        return parsed("watch_kafka").dags["watch_kafka"].test()

    return run


def test_without_a_url_there_is_no_heartbeat(bag: Any) -> None:
    assert bag.dags["watch_kafka"].task_ids == ["watch"]


def test_a_watch_that_succeeds_requests_the_url_after_the_triggerer(
    watched: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://127.0.0.1:{service.server_port}"
    run = watched(f"{url}/ping/a-secret")
    assert states(run) == {"watch": "success", "heartbeat": "success"}
    assert service.seen == [("GET", "/ping/a-secret", b"")]
    [_, beat] = sorted(run.get_task_instances(), key=lambda one: one.task_id, reverse=True)
    assert beat.next_method in ("send", None)
    watched(f"{url}/metrics/job/shardpost")
    method, _, body = service.seen[1]
    assert method == "POST"
    name, value = body.decode().split()
    assert name == "shardpost_heartbeat_seconds"
    assert abs(float(value) - datetime.now(UTC).timestamp()) < 3600
    assert "a-secret" not in caplog.text


def test_a_service_that_is_down_fails_nothing_and_is_logged_without_the_url(
    watched: Any, service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    service.status = 404
    url = f"http://127.0.0.1:{service.server_port}/a-secret"
    assert watched(url).state == "success"
    assert "SHARDPOST_HEARTBEAT_URL: the answer is 404" in caplog.text
    assert watched("http://127.0.0.1:1/a-secret").state == "success"
    assert "SHARDPOST_HEARTBEAT_URL: no answer (ConnectError)" in caplog.text
    assert "a-secret" not in caplog.text


def test_while_the_watch_fails_there_is_no_heartbeat(
    watched: Any, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardpost.errors import UsageError
    from shardpost.watch import watch

    def broken(*_: object) -> None:
        raise UsageError("the watch is broken")

    monkeypatch.setattr(watch, "watch_once", broken)
    run = watched(f"http://127.0.0.1:{service.server_port}/ping")
    assert states(run) == {"watch": "failed", "heartbeat": "upstream_failed"}
    assert service.seen == []
