"""Airflow, if it is the embedded one: its parts, its scheduler, DAGs that are broken or paused."""

from collections.abc import Iterator
from datetime import datetime

from shardpost.doctor.finding import Finding, error, ok, unknown, warning
from shardpost.embedded import airflow, stack
from shardpost.run_requests.airflow_api import AirflowApi, log_in
from shardpost.settings import Settings

API_SECONDS = 5.0
LATE_SECONDS = 30.0
MOST = 100


def check(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check the embedded Airflow; another one is left alone."""
    if settings.airflow_url is not None:
        yield unknown("airflow", f"not checked: {settings.airflow_url} is not the embedded one")
        return
    state = airflow.state(settings)
    if state["state"] == stack.DOWN:
        yield warning("airflow", "down: nothing runs by schedule", "up", "shardpost up")
        return
    if state["state"] != stack.UP:
        yield error("airflow", state["state"], "up", "shardpost up")
        return
    yield ok("airflow", f"up at {state['address']}")
    with log_in(state["address"], state["user"], state["password"], API_SECONDS) as api:
        yield check_heartbeat(api.get("/api/v2/monitor/health")["scheduler"], now)
        yield from check_dags(api)


def check_heartbeat(scheduler: dict[str, str | None], now: datetime) -> Finding:
    """Check that the scheduler is alive: it beats every few seconds."""
    beat = scheduler["latest_scheduler_heartbeat"]
    cure = "see logs/airflow-scheduler.log in SHARDPOST_HOME; shardpost down && shardpost up"
    expected = f"one within {LATE_SECONDS:g} s"
    if beat is None:
        return error("airflow scheduler", "no heartbeat", expected, cure)
    age = max(0.0, (now - datetime.fromisoformat(beat)).total_seconds())
    found = f"last heartbeat {age:.0f} s ago"
    if age > LATE_SECONDS:
        return error("airflow scheduler", found, expected, cure)
    return ok("airflow scheduler", found)


def check_dags(api: AirflowApi) -> Iterator[Finding]:
    """Check that all files of DAGs can be imported, and that no DAG is paused."""
    broken = api.get(f"/api/v2/importErrors?limit={MOST}")["import_errors"]
    for one in broken:
        reason = one["stack_trace"].strip().splitlines()[-1]
        cure = "mend the file; shardpost airflow dags list-import-errors"
        yield error(f"dag file {one['filename']}", reason, "a file that can be imported", cure)
    dags = api.get(f"/api/v2/dags?limit={MOST}")["dags"]
    paused = [dag["dag_id"] for dag in dags if dag["is_paused"]]
    for dag in paused:
        cure = f"shardpost airflow dags unpause {dag}"
        yield warning(f"dag {dag}", "paused: it does not run by schedule", "not paused", cure)
    if not broken and not paused:
        yield ok("airflow dags", f"{len(dags)}, none broken or paused")
