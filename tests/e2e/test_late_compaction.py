"""A weekly e-mail whose compaction comes an hour late, in an Airflow whose clock is moved."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from shardpost.delta import snapshots
from shardpost.embedded import airflow, daemons
from tests.conftest import environ
from tests.e2e.conftest import NEVER, client_of, eventually, processes_of
from tests.support.command_line import CommandLine
from tests.support.installed import installed
from tests.support.moved_clock import moved
from tests.support.reference import Raw, position, produce

RUN = "/api/v2/dags/weekly_email/dagRuns/an-hour-late"
COMPACTIONS = "/api/v2/dags/compact_positions"
# Kafka takes no record of an hour ahead. The rest passes while Airflow is started again.
AHEAD = 3590
CLIENT = {"Client": "anna", "Name": "Anna", "Email": "anna@example.com", "Subscribed": True}


def set_paused(api: httpx.Client, *, is_paused: bool) -> None:
    api.patch(COMPACTIONS, json={"is_paused": is_paused}).raise_for_status()


def wait(api: httpx.Client) -> tuple[str, str]:
    """Return the state of the task that waits, and what it says."""
    found = api.get(f"{RUN}/taskInstances/wait").raise_for_status().json()
    return found["state"], str(found["rendered_fields"].get("waits_for"))


def alerted(file: Path) -> list[str]:
    """Return the lines about the run that people were alerted with."""
    found = file.read_text().splitlines() if file.exists() else []
    return [line for line in found if "weekly_email an-hour-late needs attention: " in line]


def test_a_send_waits_for_its_compaction_alerts_after_an_hour_and_then_mails(
    clock_library: Path, tmp_path: Path
) -> None:
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    own = environ(home=tmp_path, partitions=2, compact_schedule=NEVER, **free)
    stack, an_hour_later = CommandLine(own), CommandLine(own | moved(clock_library, AHEAD))
    settings, tables = stack.settings, installed(stack.settings).tables
    alerts = settings.home / "alerts.log"
    try:
        stack("up")
        two_weeks_ago = datetime.now(UTC) - timedelta(days=14)
        held = position("1", "anna", "NASDAQ", timestamp_ms=int(two_weeks_ago.timestamp() * 1000))
        produce(settings, [held, Raw("clients", b"anna", json.dumps(CLIENT).encode())])
        stack("compact")
        last = snapshots.current(tables)
        old = last.looked_at - timedelta(hours=2)
        snapshots.update_looked_at(tables, replace(last, looked_at=old))
        with client_of(settings) as api:
            set_paused(api, is_paused=True)
            run = {"dag_run_id": "an-hour-late", "logical_date": None}
            api.post(RUN.rpartition("/")[0], json=run).raise_for_status()
            said = f"has the inputs as of {old:%Y-%m-%d %H:%M} UTC, more than 3600 s ago"
            eventually(lambda: said in wait(api)[1], "it does not say what it waits for")
            state, waits_for = wait(api)
            assert state == "deferred"
            assert waits_for.endswith("was started: DAG compact_positions is paused in Airflow")
            set_paused(api, is_paused=False)
        airflow.stop(settings)
        assert alerted(alerts) == []

        an_hour_later("up")
        with client_of(settings) as api:
            eventually(lambda: api.get(RUN).json()["state"] != "running", "the run waits for ever")
            assert api.get(RUN).json()["state"] == "success"
            [compaction] = api.get(f"{COMPACTIONS}/dagRuns").json()["dag_runs"]
            assert compaction["run_type"] == "operator_triggered"
            assert compaction["note"].startswith("for weekly_email an-hour-late: snapshot 1 has")
        [alert] = alerted(alerts)
        assert "waiting for a compaction for 1 h" in alert
        assert said in alert
        assert len([*(settings.home / "mail").glob("*.eml")]) == 1
    finally:
        stack("down")
    assert processes_of(tmp_path) == []
