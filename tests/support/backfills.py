"""Backfills of the weekly e-mail, by the command line of Airflow."""

import time
from datetime import UTC, datetime

import httpx

from tests.support.command_line import CommandLine

DEADLINE_SECONDS = 600
UP_SECONDS = 60


def backfill(
    stack: CommandLine,
    api: httpx.Client,
    first: str,
    last: str,
    *ends: str,
    seconds: float = DEADLINE_SECONDS,
) -> None:
    """Create a backfill of weeks that end on these days, and see that all of them end well."""
    since, deadline = datetime.now(UTC), time.monotonic() + seconds
    _create(stack, api, (first, last), deadline)
    looked = time.monotonic()
    while (is_open := _is_open(api)) or not _runs(api, since):
        assert time.monotonic() < deadline, _runs(api, since)
        if time.monotonic() > looked + UP_SECONDS:
            # Airflow's scheduler ends where SQLite breaks off the making of a run that it looks at.
            stack("up")
            looked = time.monotonic()
        if not is_open:  # it was completed before it had a run: Airflow on SQLite again
            _create(stack, api, (first, last), deadline)
        time.sleep(1)
    assert _runs(api, since) == dict.fromkeys(ends, "success")


def _create(stack: CommandLine, api: httpx.Client, days: tuple[str, str], deadline: float) -> None:
    """Create it, and again where Airflow on SQLite breaks off: what was begun is cancelled."""
    command = ("airflow", "backfill", "create", "--dag-id", "weekly_email")
    dates = ("--from-date", days[0], "--to-date", days[1], "--reprocess-behavior", "completed")
    while (done := stack.run(*command, *dates)).returncode:
        assert "database is locked" in done.stdout + done.stderr, done
        assert time.monotonic() < deadline, done
        for begun in _backfills(api):
            if not begun["completed_at"]:
                api.put(f"/api/v2/backfills/{begun['id']}/cancel").raise_for_status()


def _is_open(api: httpx.Client) -> bool:
    return not all(one["completed_at"] for one in _backfills(api))


def _runs(api: httpx.Client, since: datetime) -> dict[str, str]:
    """Return the state of each backfill's run since then by the day on which its week ended."""
    # Other tests leave a hundred runs of this DAG: more than Airflow lists at once.
    query = {"run_type": "backfill"}
    answer = api.get("/api/v2/dags/weekly_email/dagRuns", params=query).raise_for_status().json()
    return {
        run["data_interval_end"][:10]: run["state"]
        for run in answer["dag_runs"]
        if datetime.fromisoformat(run["queued_at"]) >= since
    }


def _backfills(api: httpx.Client) -> list[dict[str, str]]:
    answer = api.get("/api/v2/backfills", params={"dag_id": "weekly_email"}).raise_for_status()
    found: list[dict[str, str]] = answer.json()["backfills"]
    return found
