"""Two installations in one Airflow, on one broker: two countries, from the same input topics."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from shardpost.embedded import airflow, daemons, demo
from shardpost.embedded.daemons import Daemon, stop_together, wait_until
from shardpost.settings import Settings
from shardpost.values.topic_names import INPUTS
from tests.conftest import environ
from tests.e2e.conftest import client_of, eventually
from tests.support.command_line import CommandLine

COUNTRIES = {"us": "US", "gb": "GB"}
HOLDERS = {
    "us": {"client1": ["1", "3"], "client2": ["4"]},
    "gb": {"client1": ["2"], "client3": ["5"]},
}
USED = ("compact_positions", "dispatch_run_requests")


class SharedAirflow:
    """Airflow's parts, with the settings of each installation in a file of its own alone."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.folder = folder
        self.settings = settings.model_copy(
            update={"home": folder / "airflow-home", "airflow_port": daemons.choose_port()}
        )
        self.files = {name: folder / f"{name}.env" for name in COUNTRIES}
        for name, country in COUNTRIES.items():
            own = [f"SHARDPOST_HOME={folder / name}", f"SHARDPOST_COUNTRY={country}"]
            own += [
                f"SHARDPOST_TOPIC_{kind.upper().replace('-', '_')}={name}-{topic}"
                for kind, topic in settings.topics.items()
                if kind not in INPUTS
            ]
            self.files[name].write_text("\n".join(own))
        shared = {
            "bootstrap_servers": settings.bootstrap,
            "partitions": settings.partitions,
            "driver_memory": "512m",
            "spark_master": "local[1]",
            **{f"topic_{kind}": settings.topics[kind] for kind in INPUTS},
        }
        self.shared = environ(**shared)
        listed = " ".join(f"{name}={file}" for name, file in self.files.items())
        others = airflow.environment(self.settings).items()
        self.environment = {
            **{name: text for name, text in others if not name.startswith("SHARDPOST_")},
            **{name: text for name, text in self.shared.items() if text},
            "SHARDPOST_INSTALLATIONS": listed,
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        }
        self.parts = {
            name: Daemon(
                name=f"airflow {name}",
                command=[str(airflow.BIN / "airflow"), *command],
                env=self.environment,
                log=folder / f"{name}.log",
                pid_file=folder / f"{name}.pid",
            )
            for name, command in airflow.PROCESSES.items()
        }

    def command(self, name: str) -> CommandLine:
        """Return the command line of one installation."""
        return CommandLine({**self.shared, "SHARDPOST_INSTALLATIONS": f"{name}={self.files[name]}"})

    @contextmanager
    def up(self) -> Iterator[httpx.Client]:
        """Have all parts run; give a client that is logged in."""
        airflow.prepare(self.settings)
        try:
            for name in reversed(airflow.PROCESSES):
                self.parts[name].start()
            wait_until(
                lambda: not airflow._unhealthy_parts(self.settings),
                "Airflow",
                airflow.START_SECONDS,
                list(self.parts.values()),
            )
            with client_of(self.settings) as api:
                yield api
        finally:
            self.parts.pop("scheduler").stop(airflow.SCHEDULER_STOP_SECONDS)
            stop_together(list(self.parts.values()), airflow.STOP_SECONDS)


def runs_of(api: httpx.Client, dag: str) -> dict[str, str]:
    """Return {run: state}."""
    found = api.get(f"/api/v2/dags/{dag}/dagRuns").raise_for_status().json()["dag_runs"]
    return {run["dag_run_id"]: run["state"] for run in found}


def triggered(api: httpx.Client, dag: str) -> str:
    path = f"/api/v2/dags/{dag}/dagRuns"
    run = api.post(path, json={"logical_date": None}).raise_for_status().json()
    return f"{path}/{quote(run['dag_run_id'])}"


def has_state(api: httpx.Client, run: str, state: str) -> bool:
    found: bool = api.get(run).raise_for_status().json()["state"] == state
    return found


@pytest.mark.one_of("whole systems")
def test_each_has_its_own_dags_tables_topics_requests_and_page(
    settings: Settings, tmp_path: Path
) -> None:
    shared = SharedAirflow(settings, tmp_path)
    commands = {name: shared.command(name) for name in COUNTRIES}
    for command in commands.values():
        command("topics", "apply", "--yes")
    demo.produce(commands["us"].settings, (*demo.CONTACTS, *demo.POSITIONS))
    with shared.up() as api:
        dags = {f"{name}_{dag}" for name in COUNTRIES for dag in USED}
        eventually(
            lambda: len(api.get("/api/v2/dags", params={"limit": 99}).json()["dags"]) == 16,
            "there are not eight DAGs of each",
        )
        for dag in dags:
            api.patch(f"/api/v2/dags/{dag}", json={"is_paused": False}).raise_for_status()
        started = {name: triggered(api, f"{name}_compact_positions") for name in COUNTRIES}
        for name, run in started.items():
            eventually(partial(has_state, api, run, "success"), f"{name} was not compacted")
            assert commands[name].json("holders") == HOLDERS[name]
            page = api.get(f"/shardpost/{name}/holders?format=json").raise_for_status().json()
            assert page == HOLDERS[name]
        assert 'href="/shardpost/gb/holders"' in api.get("/shardpost/gb/").text

        asked = ("runs", "request", "compaction/one", "--dag", "compact_positions", "--wait")
        run = commands["gb"].json(*asked)["run_id"]
        linked = f"/dags/gb_compact_positions/runs/{quote(run, safe='')}"
        assert linked in api.get("/shardpost/gb/runs/key", params={"key": "compaction/one"}).text
        eventually(lambda: runs_of(api, "gb_compact_positions")[run] == "success", "no run of gb")
        assert run not in runs_of(api, "us_compact_positions")

        with shared.files["us"].open("a") as file:
            file.write("\nSHARDPOST_MAX_DROP=much\n")
        broken = triggered(api, "us_compact_positions")
        whole = triggered(api, "gb_compact_positions")
        task = f"{broken}/taskInstances/compact"
        eventually(lambda: has_state(api, broken, "failed"), "a wrong file fails no task of us")
        log = api.get(f"{task}/logs/1", headers={"Accept": "application/json"}).text
        assert f"{shared.files['us']}: setting SHARDPOST_MAX_DROP='much': expected " in log
        eventually(lambda: has_state(api, whole, "success"), "a wrong file of us broke gb")
        assert api.get("/api/v2/importErrors").json()["import_errors"] == []
