"""What a run of the compaction is asked for; one that follows until the next one is there."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from shardpost.checkout import CHECKOUT
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.spark.job import document_of, request_of

FILE = CHECKOUT / "dags" / "compact_positions.py"


class Run:
    """A run of the DAG, with what it was triggered with."""

    def __init__(self, conf: dict[str, object]) -> None:
        self.conf = conf


def requested(dag: Any, **conf: object) -> CompactionRequest:
    """Return what the task of a run with these params asks the job for."""
    [task] = dag.tasks
    params = {name: dag.params[name] for name in dag.params} | conf
    made = task.request_of({"dag_run": Run(conf), "params": params})
    assert isinstance(made, CompactionRequest)
    return request_of(CompactionRequest, document_of(made, with_now=False))


def test_a_run_compacts_once_unless_it_is_to_follow(dag: Any) -> None:
    assert requested(dag) == CompactionRequest()
    meant = requested(dag, accept_drop=True, country_changed=True)
    assert meant == CompactionRequest(accept_drop=True, country_changed=True)


def test_one_that_follows_ends_ten_minutes_after_the_next_is_due(dag: Any) -> None:
    now = datetime.now(UTC)
    follow = requested(dag, follow=True).follow
    assert follow is not None
    due = follow.until - timedelta(minutes=10)
    assert timedelta() < due - now <= timedelta(minutes=15)
    assert (due.minute % 15, due.second) == (0, 0)


@pytest.mark.parametrize(("given", "runs"), [("on", 2), ("off", 1)])
def test_a_setting_has_each_run_follow_and_the_next_one_begin_beside_it(
    given: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDPOST_FOLLOW", given)
    monkeypatch.setenv("SHARDPOST_COMPACT_SCHEDULE", "0 * * * *")
    dag = DagBag(dag_folder=FILE).dags["compact_positions"]
    assert dag.max_active_runs == runs
    assert (requested(dag).follow is not None) == (given == "on")
    timeout = dag.tasks[0].execution_timeout
    assert timeout is not None
    assert timeout >= timedelta(hours=3, minutes=10)
