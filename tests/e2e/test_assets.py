"""Asset events and OpenLineage of a real Airflow, and the example that is scheduled by one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from shardpost.checkout import CHECKOUT
from shardpost.embedded import daemons
from tests.conftest import environ
from tests.e2e.conftest import UNSCHEDULED, client_of, eventually, processes_of
from tests.support.command_line import CommandLine
from tests.support.openlineage_events import datasets_of
from tests.support.reference import client, position, produce

EXAMPLE, NEW_EVENTS = "client_changed", "/api/v2/assets/events"
DAGS = (EXAMPLE, "sweep_dead_letters", "weekly_email", "import_positions", "rebuild_tables")
FOLDERS = {"dags-folder": CHECKOUT / "dags", "examples": CHECKOUT / "docs" / "examples"}
LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"


def configuration(events: Path) -> str:
    """Return what this Airflow has beside the defaults: the examples, and OpenLineage to a file."""
    bundles = [
        {"name": name, "classpath": LOCAL, "kwargs": {"path": str(path)}}
        for name, path in FOLDERS.items()
    ]
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    return (
        f"[dag_processor]\nmin_file_process_interval = 20\n"
        f"dag_bundle_config_list = {json.dumps(bundles)}\n"
        f"[openlineage]\nnamespace = test\ntransport = {json.dumps(transport)}\n"
    )


class Watched:
    """A stack with a position and its holder, its API, and where OpenLineage writes to."""

    def __init__(self, stack: CommandLine, api: httpx.Client, events: Path) -> None:
        self.stack, self.api, self.events = stack, api, events

    def start(self, dag: str, **conf: object) -> str:
        """Start a run; return its path."""
        made = self.api.post(
            f"/api/v2/dags/{dag}/dagRuns", json={"logical_date": None, "conf": conf}
        )
        name = made.raise_for_status().json()["dag_run_id"]
        return f"/api/v2/dags/{dag}/dagRuns/{quote(name)}"

    def run(self, dag: str, **conf: object) -> None:
        """Run a DAG to its end, which is good."""
        path = self.start(dag, **conf)
        eventually(lambda: self.state(path) in ("success", "failed"), f"{dag} does not end", 600)
        assert self.state(path) == "success", path

    def state(self, path: str) -> str:
        return str(self.api.get(path).raise_for_status().json()["state"])

    def extras(self, asset: str) -> list[dict[str, Any]]:
        """Return the extras of an asset's events, the oldest first."""
        found = self.api.get(NEW_EVENTS, params={"limit": 100, "order_by": "timestamp"})
        return [
            one["extra"]
            for one in found.raise_for_status().json()["asset_events"]
            if one["name"] == asset
        ]

    def said(self) -> list[dict[str, Any]]:
        """Return what ended runs of the example have found."""
        path = f"/api/v2/dags/{EXAMPLE}/dagRuns"
        runs = self.api.get(path).raise_for_status().json()["dag_runs"]
        xcoms = (
            self.api.get(
                f"{path}/{quote(run['dag_run_id'])}/taskInstances/say/xcomEntries/return_value"
            )
            for run in runs
            if run["state"] == "success"
        )
        return [one.raise_for_status().json()["value"] for one in xcoms]

    def lineage(self, task: str) -> dict[str, dict[str, str | None]]:
        """Return {direction: {namespace and name: version}} of a task's ends."""
        return datasets_of(self.events, task)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    home = tmp_path_factory.mktemp("assets")
    stack = CommandLine(environ(home=home, partitions=2, **UNSCHEDULED, **free))
    events = home / "lineage.jsonl"
    events.touch()
    (stack.settings.folder("airflow") / "airflow.cfg").write_text(configuration(events))
    kafka = {
        "bootstrap.servers": stack.settings.bootstrap,
        "group.id": "of-the-example",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    try:
        stack("up")
        connection = json.dumps({"conn_type": "kafka", "extra": kafka})
        added = ("connections", "add", "kafka_client_changed", "--conn-json", connection)
        stack("airflow", *added)
        produce(stack.settings, [client("client1", "ann"), position("1", "client1", "NASDAQ")])
        with client_of(stack.settings) as api:
            paths = [f"/api/v2/dags/{dag}" for dag in DAGS]
            eventually(lambda: all(api.get(one).is_success for one in paths), "a DAG is not known")
            yield Watched(stack, api, events)
    finally:
        stack("down")
    assert processes_of(home) == []


@pytest.mark.one_of("whole systems")
def test_a_compaction_has_an_event_that_starts_a_dag_which_waits_for_a_record(
    watched: Watched,
) -> None:
    watched.run("compact_positions")
    [extra] = watched.extras("share_holders")
    assert (extra["snapshot"], extra["holders"], extra["published"]) == (1, 1, 1)
    assert sum(extra["end_offsets"]["positions"].values()) == 1
    eventually(lambda: watched.said() != [], "the example has not ended")
    holds = {"Client": "client1", "Positions": ["1"]}
    assert watched.said() == [{"snapshot": 1, "holds": holds}]
    watched.run("compact_positions")  # with nothing new
    assert len(watched.extras("share_holders")) == len(watched.extras("shardpost_snapshots")) == 1

    kafka = watched.stack.settings.bootstrap

    def found() -> dict[str, dict[str, str | None]]:
        return watched.lineage("compact_positions.compact")

    eventually(lambda: found()["outputs"] != {}, "OpenLineage has no datasets")
    tables, ends = (
        watched.stack.settings.tables_root,
        found()["inputs"][f"kafka://{kafka} positions"],
    )
    assert sorted(json.loads(ends or "").values()) == [0, 1]
    assert found()["outputs"][f"file {tables}/snapshots"] == "1"
    assert found()["outputs"][f"file {tables}/share_holders"] is not None
    assert found()["outputs"][f"kafka://{kafka} share-holders"] == "1"

    run = watched.start("compact_positions", follow=True)
    produce(watched.stack.settings, [position("2", "client1", "NASDAQ")])

    def of_turns() -> list[dict[str, Any]]:
        extras = watched.extras("share_holders")
        return [extra["payload"] for extra in extras if extra.get("from_trigger")]

    eventually(lambda: any(one["snapshot"] == 2 for one in of_turns()), "no event of a turn")
    assert watched.state(run) == "running"
    watched.api.patch(run, json={"state": "failed"}).raise_for_status()


@pytest.mark.one_of("whole systems")
def test_each_job_emits_its_datasets_to_openlineage(watched: Watched, tmp_path: Path) -> None:
    stack = watched.stack
    stack("compact")
    (tmp_path / "list.csv").write_text(
        "PositionId,Client,Ticker,Amount,Exchange\n1,client1,T,1,NASDAQ\n3,client2,T,1,NASDAQ\n"
    )
    watched.run("sweep_dead_letters")
    watched.run("weekly_email", early=True)
    watched.run(
        "import_positions", source=str(tmp_path / "list.csv"), apply=True, max_closed="100%"
    )
    watched.run("rebuild_tables", max_changed="100%")
    kafka, tables = f"kafka://{stack.settings.bootstrap} ", f"file {stack.settings.tables_root}/"

    def has(task: str, direction: str, *names: str) -> None:
        def is_there() -> bool:
            return {*names} <= watched.lineage(task)[direction].keys()

        eventually(is_there, f"{task} lacks {direction} of {names}", 60)
        found = watched.lineage(task)[direction]
        assert all(found[name] is not None for name in names if "list.csv" not in name), found

    has("sweep_dead_letters.sweep", "inputs", f"{kafka}dead-letters")
    has("weekly_email.send", "inputs", f"{tables}snapshots", f"{tables}audiences")
    has("weekly_email.send", "outputs", f"{kafka}weekly-emails")
    has("import_positions.import", "inputs", f"{tables}snapshots", f"file {tmp_path}/list.csv")
    has("import_positions.import", "outputs", f"{kafka}positions", f"{kafka}decisions")
    has("rebuild_tables.build", "outputs", f"{tables}positions.2")
    has("rebuild_tables.swap", "outputs", f"{tables}snapshots")
