"""An Airflow of somebody else: the wheel, its connections, and no disk that its parts share."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from shardpost.embedded import airflow, daemons, demo
from shardpost.embedded.daemons import Daemon, stop_together, wait_until
from shardpost.settings import Settings
from tests.e2e.conftest import client_of, eventually
from tests.support import wheel
from tests.support.command_line import CommandLine

# What connections, and a Variable, say instead.
LEFT_OPEN = (
    *("SHARDPOST_BOOTSTRAP_SERVERS", "SHARDPOST_KAFKA_PORT", "SHARDPOST_SMTP_HOST"),
    "SHARDPOST_ALERTS",
)
LOGIN = "SHARDPOST_AIRFLOW_"
USED = ("compact_positions", "dispatch_run_requests")


class OwnAirflow:
    """Airflow's parts, each with a home of its own, as on machines of their own."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.site, self.folder = wheel.install(folder), folder
        self._settings = settings
        self._shared = airflow.environment(self._settings)
        self.parts = {name: self._daemon(name) for name in airflow.PROCESSES}

    def environment(self, part: str) -> dict[str, str]:
        """Return the variables of a part: without a connection, what one says, and a login."""
        home = self.folder / part
        own = {
            **{name: text for name, text in self._shared.items() if "AIRFLOW_CONN" not in name},
            **wheel.environment(self.site, home),
            "AIRFLOW_HOME": str(home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.site / "shardpost" / "shipped" / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
            "SHARDPOST_HOME": str(home / "shardpost"),
            "SHARDPOST_TABLES": self._settings.tables_root,
        }
        left = {name for name in own if name.startswith(LOGIN)} | {*LEFT_OPEN}
        return {name: text for name, text in own.items() if name not in left}

    def cli(self, *arguments: str) -> str:
        """Run a command of Airflow."""
        command = [str(airflow.BIN / "airflow"), *arguments]
        done = subprocess.run(
            command, env=self.environment("admin"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def up(self) -> Iterator[None]:
        """Have all parts run."""
        try:
            for name in reversed(airflow.PROCESSES):
                self.parts[name].start()
            wait_until(
                lambda: not airflow._unhealthy_parts(self._settings),
                "Airflow",
                airflow.START_SECONDS,
                list(self.parts.values()),
            )
            yield
        finally:
            self.parts.pop("scheduler").stop(airflow.SCHEDULER_STOP_SECONDS)
            stop_together(list(self.parts.values()), airflow.STOP_SECONDS)

    def _daemon(self, name: str) -> Daemon:
        return Daemon(
            name=f"airflow {name}",
            command=[str(airflow.BIN / "airflow"), *airflow.PROCESSES[name]],
            env=self.environment(name),
            log=self.folder / name / "log",
            pid_file=self.folder / name / "pid",
        )


@pytest.mark.one_of("whole systems")
def test_a_request_becomes_a_run_of_the_wheel_by_connections_alone(
    settings: Settings, tmp_path: Path
) -> None:
    """Trigger, dispatch and Spark driver find Kafka by kafka_default, which nothing else names.

    The dispatch starts the run without a login: no part has one.
    """
    on_port = settings.model_copy(
        update={"airflow_port": daemons.choose_port(), "askable_dags": "compact_positions"}
    )
    own = OwnAirflow(on_port, tmp_path)
    own.cli("db", "migrate")
    kafka = {"bootstrap.servers": settings.bootstrap, "group.id": "of-others"}
    connections = {
        "kafka_default": {"conn_type": "kafka", "extra": json.dumps(kafka)},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
    }
    (tmp_path / "connections.json").write_text(json.dumps(connections))
    own.cli("connections", "import", str(tmp_path / "connections.json"))
    own.cli("variables", "set", "shardpost_alerts", "json://127.0.0.1:1/a-secret-of-alerts")
    own.cli("dags", "reserialize")  # so that there is something to unpause
    said = own.cli("dags", "unpause", "--yes", "--treat-dag-id-as-regex", "|".join(USED))
    assert all(dag in said for dag in USED)
    shardpost = CommandLine(on_port.environ())
    shardpost("topics", "apply", "--yes")
    demo.produce(on_port, (*demo.CONTACTS, *demo.POSITIONS))
    with own.up(), client_of(on_port) as api:
        asked = ("runs", "request", "compaction/own", "--dag", "compact_positions", "--wait")
        run = shardpost.json(*asked)["run_id"]
        path = f"/api/v2/dags/compact_positions/dagRuns/{quote(run)}"
        eventually(lambda: api.get(path).json()["state"] == "success", "the run did not end well")
        dispatch = "/api/v2/dags/dispatch_run_requests/dagRuns"  # not when its schedule says
        api.post(dispatch, json={"logical_date": None}).raise_for_status()
        eventually(lambda: shardpost.json("runs", "list") == [], "its key is not free")
    assert shardpost.json("holders") == {"client1": ["1", "3"], "client2": ["4"]}
    logs = "".join(path.read_text() for path in (tmp_path / "scheduler").rglob("*.log"))
    assert "Kafka: from the connection kafka_default" in logs
    assert "SHARDPOST_ALERTS: from the Variable shardpost_alerts" in logs
    assert "a-secret-of-alerts" not in logs
