"""What a real Airflow sends to OpenLineage."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from shardpost.embedded import daemons
from tests.conftest import environ
from tests.e2e.conftest import client_of, eventually, processes_of
from tests.support.command_line import CommandLine
from tests.support.openlineage_events import datasets_of
from tests.support.reference import client, position, produce

DAGS = ("sweep_dead_letters", "weekly_email", "import_positions", "rebuild_tables")


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

    def lineage(self, task: str) -> dict[str, dict[str, str | None]]:
        """Return {direction: {namespace and name: version}} of a task's ends."""
        return datasets_of(self.events, task)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    home = tmp_path_factory.mktemp("assets")
    passed = (datetime.now(UTC) - timedelta(minutes=5)).minute
    hourly = dict.fromkeys(("compact_schedule", "sweep_schedule"), f"{passed} * * * *")
    stack = CommandLine(environ(home=home, partitions=2, **hourly, **free))
    events = home / "lineage.jsonl"
    events.touch()
    transport = json.dumps({"type": "file", "log_file_path": str(events), "append": True})
    lineage = f"[openlineage]\nnamespace = test\ntransport = {transport}\n"
    (stack.settings.folder("airflow") / "airflow.cfg").write_text(lineage)
    try:
        stack("up")
        produce(stack.settings, [client("client1", "ann"), position("1", "client1", "NASDAQ")])
        with client_of(stack.settings) as api:
            paths = [f"/api/v2/dags/{dag}" for dag in DAGS]
            eventually(lambda: all(api.get(one).is_success for one in paths), "a DAG is not known")
            yield Watched(stack, api, events)
    finally:
        stack("down")
    assert processes_of(home) == []


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
