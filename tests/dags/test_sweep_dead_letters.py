"""sweep_dead_letters: a run ends well also when something needs a person, who is told once."""

from collections import Counter
from pathlib import Path
from typing import Any

from shardpost.dead_letters.model.retry_policy import Outcome
from shardpost.dead_letters.model.transition_records import ParkedGroup
from shardpost.dead_letters.sweep_job import GONE, Gap, Intake, as_json
from shardpost.kafka.records import TopicPartition
from tests.dags.conftest import StandIn

Parked = Counter[ParkedGroup]


def states(run: Any) -> dict[str, tuple[str, int]]:
    return {one.task_id: (one.state, one.try_number) for one in run.get_task_instances()}


def test_a_sweep_after_which_all_is_well_alerts_nobody(
    dag: Any, stand_in: StandIn, alerts: Path
) -> None:
    result = as_json(Counter({Outcome.RETRY: 2}), Parked(), Intake(1))
    stand_in({"": [0, result]})
    run = dag.test()
    assert run.state == "success"
    assert states(run) == {"sweep": ("success", 1), "report": ("skipped", 1)}
    assert not alerts.exists()


def test_a_sweep_that_parks_ends_well_and_alerts_once(
    dag: Any, stand_in: StandIn, alerts: Path
) -> None:
    gap = Gap(TopicPartition("orders.DLT", 0), 5, 9, GONE)
    parked = Parked({ParkedGroup("orders", "KeyError-1"): 2})
    counts = Counter({Outcome.PARK: 2, Outcome.RETRY: 7})
    calls = stand_in({"": [3, as_json(counts, parked, Intake(0, (gap,)))]})
    run = dag.test()
    assert run.state == "success"
    assert states(run) == {"sweep": ("success", 1), "report": ("success", 1)}
    assert len(calls.read_text().splitlines()) == 1
    [_, line] = alerts.read_text().splitlines()
    assert f" sweep_dead_letters {run.run_id} needs attention: parked: 2 of orders, Key" in line
    assert f"; orders.DLT[0]: offsets 5 to 9: {GONE}" in line


def test_very_many_things_make_one_alert_of_bounded_length(
    dag: Any, stand_in: StandIn, alerts: Path
) -> None:
    parked = Parked({ParkedGroup("orders", f"E-{n}"): 1 for n in range(500)})
    stand_in({"": [3, as_json(Counter({Outcome.PARK: 500}), parked, Intake())]})
    assert dag.test().state == "success"
    [_, line] = alerts.read_text().splitlines()
    assert line.count("parked: 1 of orders") == 20
    assert line.endswith(" and 80 more")
