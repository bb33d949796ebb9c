"""maintain_tables: when it runs, and what its task does."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shardpost.installation import Installation
from shardpost.maintenance import maintain as module
from shardpost.maintenance.model.plan import Plan
from tests.dags.conftest import read_back

UNKNOWN = "it is unknown which snapshots Kafka stores: it does not answer"


@pytest.fixture
def unknown() -> list[str]:
    """Why no snapshot goes, if a test says so."""
    return []


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, unknown: list[str]) -> list[bool]:
    found: list[bool] = []

    def maintain(_installation: Installation, now: datetime, *, dry_run: bool) -> Plan:
        assert now.tzinfo == UTC
        found.append(dry_run)
        return Plan(kept=[1, 4], dropped=[2, 3], unknown=next(iter(unknown), None))

    monkeypatch.setattr(module, "maintain", maintain)
    return found


def test_it_runs_once_a_week(dag: Any) -> None:
    assert read_back(dag).timetable.summary == "0 3 * * SUN"


@pytest.mark.parametrize("dry_run", [True, False])
def test_it_maintains_or_says_what_would_go(dag: Any, seen: list[bool], dry_run: bool) -> None:
    run = dag.test(run_conf={"dry_run": dry_run})
    assert run.state == "success"
    assert seen == [dry_run]
    (task,) = run.get_task_instances()
    assert task.xcom_pull(task_ids="maintain")["snapshots"] == 2


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_it_could_not_do_alerts_once(
    dag: Any, seen: list[bool], unknown: list[str], alerts: Path, dry_run: bool
) -> None:
    unknown.append(UNKNOWN)
    run = dag.test(run_conf={"dry_run": dry_run})
    assert run.state == "success"
    if dry_run:
        assert not alerts.exists()
    else:
        [_, line] = alerts.read_text().splitlines()
        assert f" maintain_tables {run.run_id} needs attention: {UNKNOWN}" in line
