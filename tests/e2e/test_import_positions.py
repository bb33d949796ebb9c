"""A list in a real database, which a real Airflow reaches by one of its connections."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.e2e.conftest import eventually
from tests.support.command_line import CommandLine
from tests.support.imports import records
from tests.support.postgresql import PASSWORD, USER, Postgresql, postgresql
from tests.support.reference import position, produce

DAG = "/api/v2/dags/import_positions"
# The stack is that of all tests: positions of this one begin so.
LIST = """
CREATE SCHEMA live;
CREATE TABLE live.list AS
SELECT 'ivy-' || n AS positionid, 'ivy' AS client, 'T' AS ticker, 1.00 AS amount,
    'NASDAQ' AS exchange, timestamptz '2026-11-21 08:00+01' + n * interval '1 hour' AS changed
FROM generate_series(1, 3) AS n;
"""
CHANGE = """
UPDATE live.list SET client = 'iva', changed = changed + interval '1 day'
WHERE positionid = 'ivy-2';
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Postgresql]:
    """Give a PostgreSQL with a list in it."""
    with postgresql() as found:
        found.run(LIST)
        yield found


def run(api: httpx.Client, **params: object) -> dict[str, Any]:
    """Run an import to its end, which is good, and return its result."""
    body = {"logical_date": None, "conf": params}
    made = api.post(f"{DAG}/dagRuns", json=body).raise_for_status().json()
    path = f"{DAG}/dagRuns/{quote(made['dag_run_id'])}"

    def state() -> str:
        return str(api.get(path).raise_for_status().json()["state"])

    eventually(lambda: state() in ("success", "failed"), f"{path} does not end", 600)
    tasks = api.get(f"{path}/taskInstances").raise_for_status().json()["task_instances"]
    assert state() == "success", [(one["task_id"], one["state"]) for one in tasks]
    result = api.get(f"{path}/taskInstances/import/xcomEntries/return_value")
    return dict(result.raise_for_status().json()["value"])


@pytest.mark.one_of("whole systems")
def test_a_list_in_postgresql_is_imported_by_the_connection_of_airflow(
    stack: CommandLine, api: httpx.Client, database: Postgresql
) -> None:
    connection = {
        "connection_id": "book_of_ivy",
        "conn_type": "postgres",
        "host": database.host.address,
        "port": database.port,
        "login": USER,
        "password": PASSWORD,
        "schema": "postgres",
        "extra": '{"options": "-c search_path=live", "sslmode": "prefer"}',
    }
    api.post("/api/v2/connections", json=connection).raise_for_status()
    produce(stack.settings, [position("ivy-1", "ivy", "NASDAQ")])
    stack("compact")
    eventually(lambda: api.get(DAG).is_success, "the DAG is not known")
    api.patch(DAG, json={"is_paused": False}).raise_for_status()
    asked = {"source": "airflow:book_of_ivy", "table": "list", "watermark": "changed"}
    plan = run(api, **asked)
    shown = {name: plan[name] for name in ("rows", "new", "equal", "closed", "applied")}
    assert shown == {"rows": 3, "new": 2, "equal": 1, "closed": 0, "applied": False}
    done = run(api, **asked, apply=True, up_to=plan["up_to"])
    assert (done["applied"], done["written"]) == (True, 2)
    found = [(one.key or b"").decode() for one in records(stack.settings)]
    assert sorted(found) == ["ivy-2", "ivy-3"]
    stack("compact")
    database.run(CHANGE)
    again = run(api, **asked, apply=True)
    assert (again["rows"], again["changed"], again["equal"]) == (2, 1, 1)
    stack("compact")
    assert stack.json("holders", "iva") == {"iva": ["ivy-2"]}
    assert stack.json("holders", "ivy") == {"ivy": ["ivy-1", "ivy-3"]}
