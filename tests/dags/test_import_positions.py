"""import_positions: what its params become, and when its run fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dags.conftest import StandIn, states

PLAN = {
    "import_id": "a1",
    "source": "list.csv",
    "up_to": "3:5f0c1d9e4b7a2c38",
    "rows": 3,
    "new": 1,
    "changed": 0,
    "closed": 1,
    "equal": 1,
    "left": 0,
    "rejected": [],
    "rejected_rows": 0,
    "ignored": [],
    "unknown_exchanges": {},
    "samples": {"new": ["7"]},
    "applied": False,
    "applied_before": None,
    "written": 0,
    "refused": None,
}


def test_a_plan_is_logged_and_ends_well(dag: Any, stand_in: StandIn, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.touch()
    calls = stand_in({"": [0, PLAN]})
    run = dag.test(run_conf={"source": str(path)})
    assert states(run) == {"import": "success", "report": "success"}
    [request] = map(json.loads, calls.read_text().splitlines())
    assert request.pop("who")
    assert request == {"source": {"location": str(path), "format": "csv"}}


def test_all_params_reach_the_job(dag: Any, stand_in: StandIn) -> None:
    calls = stand_in({"": [0, PLAN | {"applied": True, "written": 2}]})
    conf = {"source": "jdbc:postgresql://db/x", "query": "SELECT 1", "apply": True}
    conf |= {"max_closed": "20%", "import_id": "monday", "why": "a new feed", "table": ""}
    conf["up_to"] = "3:5f0c1d9e4b7a2c38"
    run = dag.test(run_conf=conf)
    assert states(run) == {"import": "success", "report": "success"}
    [request] = map(json.loads, calls.read_text().splitlines())
    assert request.pop("who")
    assert request == {
        "source": {"url": "jdbc:postgresql://db/x", "query": "SELECT 1"},
        "is_applied": True,
        "import_id": "monday",
        "max_closed": 0.2,
        "why": "a new feed",
        "up_to": "3:5f0c1d9e4b7a2c38",
    }


def test_a_refused_import_fails_the_run_and_is_not_repeated(
    dag: Any, stand_in: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / "list.csv"
    path.touch()
    refused = PLAN | {"refused": "2 of 3 open positions would close (66.67%), more than 5%"}
    calls = stand_in({"": [3, refused]})
    run = dag.test(run_conf={"source": str(path), "apply": True})
    assert states(run) == {"import": "success", "report": "failed"}
    assert len(calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"source": "/no/such/list.csv"},
        {"source": "jdbc:postgresql://db/x"},
        {"source": "jdbc:postgresql://db/x", "table": "t", "max_closed": "20"},
        {"source": "jdbc:postgresql://db/x", "table": "t", "up_to": "yesterday"},
        {"source": "jdbc:postgresql://db/x", "table": "t", "aply": True},
    ],
)
def test_params_that_could_only_be_refused_start_nothing(
    dag: Any, stand_in: StandIn, conf: dict[str, object]
) -> None:
    calls = stand_in({"": [0, PLAN]})
    run = dag.test(run_conf=conf)
    assert states(run)["import"] == "failed"
    assert not calls.exists()
