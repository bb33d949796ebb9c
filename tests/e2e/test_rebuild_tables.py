"""A rebuild in a real Airflow: a person refuses the swap, agrees to it, or takes it back."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.e2e.conftest import eventually
from tests.support import decisions
from tests.support.command_line import CommandLine
from tests.support.reference import exchange, position, produce

DEADLINE_SECONDS = 600
DAG = "/api/v2/dags/rebuild_tables"
ENDED = ("success", "failed")
WAITS = "awaiting_input"
OF_US = {"uma": ["r1"], "una": ["r2"]}
OF_GB = {"greg": ["r3"], "una": ["r4"]}
RECORDS = [
    *(exchange("XUS", "US"), exchange("XGB", "GB")),
    *(position("r1", "uma", "XUS"), position("r2", "una", "XUS")),
    *(position("r3", "greg", "XGB"), position("r4", "una", "XGB")),
]


def start(api: httpx.Client, **params: object) -> str:
    body = {"logical_date": None, "conf": params}
    made = api.post(f"{DAG}/dagRuns", json=body).raise_for_status().json()
    return f"{DAG}/dagRuns/{quote(made['dag_run_id'])}"


def tasks(api: httpx.Client, run: str) -> dict[str, str]:
    found = api.get(f"{run}/taskInstances").raise_for_status().json()["task_instances"]
    return {task["task_id"]: task["state"] for task in found}


def state(api: httpx.Client, run: str) -> str:
    return str(api.get(run).raise_for_status().json()["state"])


def question(api: httpx.Client, run: str) -> dict[str, Any]:
    """Wait for what a run asks, and return it."""

    def is_asked() -> bool:
        found = tasks(api, run)
        assert state(api, run) not in ENDED, found
        return found.get("approval") == WAITS

    eventually(is_asked, f"{run} asks nothing", DEADLINE_SECONDS)
    [found] = api.get(f"{run}/hitlDetails").raise_for_status().json()["hitl_details"]
    return dict(found)


def answer(api: httpx.Client, run: str, option: str, reason: str | None = None) -> None:
    """Answer what a run asks, as late as a person would.

    Airflow loses a task that goes on before its scheduler has noted that it waits, which it has
    after two heartbeats.
    """
    body = {"chosen_options": [option], "params_input": {"reason": reason}}
    path = f"{run}/taskInstances/approval/-1/hitlDetails"
    heartbeats = set[str]()

    def is_taken() -> bool:
        if (found := tasks(api, run))["approval"] != WAITS:
            heartbeats.clear()
        elif len(heartbeats) > 2:
            api.patch(path, json=body)
        else:
            health = api.get("/api/v2/monitor/health").raise_for_status().json()
            heartbeats.add(health["scheduler"]["latest_scheduler_heartbeat"])
        return found["approval"] in ENDED

    eventually(is_taken, f"{run} takes no answer", DEADLINE_SECONDS)


def succeeded(api: httpx.Client, run: str) -> list[str]:
    """Wait for the end of a run, and return the tasks that were done."""
    eventually(lambda: state(api, run) in ENDED, f"{run} does not end", DEADLINE_SECONDS)
    assert state(api, run) == "success", tasks(api, run)
    return sorted(name for name, one in tasks(api, run).items() if one == "success")


def held(stack: CommandLine) -> dict[str, list[str]]:
    """Return who holds what of this test's."""
    found = stack.json("holders")
    return {client: ids for client, ids in found.items() if client in {*OF_US, *OF_GB}}


def swaps(stack: CommandLine) -> list[tuple[bytes, str, str, bytes]]:
    """Return what is on record: (rebuild, who, why, action), the oldest first."""
    found = [one for one in decisions.list_all(stack.settings) if one[0].kind == "swapped"]
    found.sort(key=lambda one: one[0].when)
    return [(one.about, one.who, one.why, headers["action"]) for one, headers in found]


def holding(stack: CommandLine) -> int:
    """Have this test's holders of US stock; return the number of the next rebuild."""
    produce(stack.settings, RECORDS)
    stack("compact")
    assert held(stack) == OF_US
    return max((one["rebuild"] for one in stack.json("rebuild", "list")), default=1) + 1


@pytest.mark.one_of("whole systems")
def test_a_person_refuses_a_swap(stack: CommandLine, api: httpx.Client) -> None:
    number, before = holding(stack), swaps(stack)
    refused = start(api, country="GB")
    asked = question(api, refused)
    assert asked["subject"] == f"Swap the tables of rebuild {number}?"
    assert asked["options"] == ["Swap", "Drop"]
    assert "country GB" in asked["body"]
    assert "client greg: only in the new: old none, new r3" in asked["body"]
    assert "| holders |" in asked["body"]
    assert held(stack) == OF_US
    answer(api, refused, "Drop")
    assert succeeded(api, refused) == [
        *("approval", "build", "check", "choose", "diff", "drop", "report")
    ]
    assert held(stack) == OF_US
    states = {one["rebuild"]: one["state"] for one in stack.json("rebuild", "list")}
    assert states[number] == "dropped"
    assert swaps(stack) == before


@pytest.mark.one_of("whole systems")
def test_a_person_agrees_to_a_swap_and_takes_it_back(stack: CommandLine, api: httpx.Client) -> None:
    number, before = holding(stack), swaps(stack)
    name = f"rebuild/{number}".encode()
    agreed = start(api, country="GB", why="moved to London")
    question(api, agreed)
    produce(stack.settings, [position("r3", "gwen", "XGB")])  # comes while it waits
    stack("compact")
    answer(api, agreed, "Swap", "as ordered")
    assert "swap" in succeeded(api, agreed)
    assert held(stack) | {"gwen": stack.json("holders")["gwen"]} == {"gwen": ["r3"], "una": ["r4"]}
    on_record = [*before, (name, "admin", "as ordered", b"swap")]
    assert swaps(stack) == on_record

    back = start(api, action="rollback", why="not yet")
    assert succeeded(api, back) == ["choose", "report", "rollback"]
    assert held(stack) == OF_US
    assert swaps(stack) == [*on_record, (name, "admin", "not yet", b"rollback")]
    stack("rebuild", "drop")  # other tests go on with this stack
