"""An Airflow on PostgreSQL whose scheduler or database dies, or is cut off, while its DAGs run."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import httpx
import pytest

from shardpost.embedded import airflow, daemons
from shardpost.embedded.daemons import Daemon, stop_together, wait_until
from shardpost.settings import Settings
from tests.e2e.conftest import client_of
from tests.support.cluster import Cluster, Database, Part
from tests.support.how_far import by_seed
from tests.support.installation import WORK, Installation
from tests.support.job_process import wait_for
from tests.support.network import Host
from tests.support.postgresql import PASSWORD, USER

FAULT_SECONDS, LONGEST_WAIT_SECONDS = 30.0, 40.0
ENDED = {"success", "failed"}


class AirflowOnPostgres:
    """Its parts on this machine, its database on a host of its own, no schedule."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings, self.database = settings, database.part
        server = database.server
        address = f"{USER}:{PASSWORD.replace(' ', '%20')}@{server.host.address}:{server.port}"
        given = airflow.process_environment(settings)
        self._env = {name: text for name, text in given.items() if "CONNECT_ARGS" not in name} | {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{address}/postgres",
            airflow.HOME_VARIABLE: str(settings.home),
        }
        self.parts = {name: self._daemon(name) for name in airflow.PROCESSES}

    def _daemon(self, name: str) -> Daemon:
        command = [str(airflow.BIN / "airflow"), *airflow.PROCESSES.get(name, name.split())]
        log = self.settings.home / "logs" / f"airflow-{name}.log"
        pid_file = self.settings.home / "run" / f"airflow-{name}.pid"
        return Daemon(f"airflow {name}", command, self._env, log, pid_file)

    @contextmanager
    def up(self) -> Iterator[None]:
        """Have all parts run; nothing that they started outlives them."""
        migration = self._daemon("db migrate")
        migration.start()
        wait_for(lambda: not migration.alive, "Airflow's tables")
        try:
            for name in reversed(airflow.PROCESSES):
                self.parts[name].start()
            self.await_health()
            yield
        finally:
            self.parts["scheduler"].stop(airflow.SCHEDULER_STOP_SECONDS)
            stop_together(list(self.parts.values()), airflow.STOP_SECONDS)
            airflow._kill_orphans(self.settings)

    def await_health(self) -> None:
        wait_until(self._is_healthy, "Airflow", airflow.START_SECONDS)

    def _is_healthy(self) -> bool:
        """Start what has ended without its database, as whoever supervises services does."""
        for part in self.parts.values():
            if not part.alive:
                part.start()
        return not airflow._unhealthy_parts(self.settings)

    def faults(self) -> dict[str, AbstractContextManager[object]]:
        scheduler = Part(self.parts["scheduler"], Host())
        return {
            "scheduler killed": self._scheduler_killed(),
            "scheduler killed with its tasks": scheduler.killed(),
            "database killed": self.database.killed(),
            "database cut off": self.database.cut_off(),
        }

    @contextmanager
    def _scheduler_killed(self) -> Iterator[None]:
        os.kill(self.parts["scheduler"].pid or 0, signal.SIGKILL)
        try:
            yield
        finally:
            self.parts["scheduler"].start()

    def start_run(self, dag: str, conf: dict[str, str]) -> str:
        """Start a run; return its id."""
        form = {"logical_date": None, "conf": conf}
        with client_of(self.settings) as api:
            found = api.post(f"/api/v2/dags/{dag}/dagRuns", json=form).raise_for_status().json()
            return str(found["dag_run_id"])

    def state(self, dag: str, run: str) -> str:
        """Return the state of a run; what is wrong while Airflow does not say."""
        try:
            with client_of(self.settings) as api:
                found = api.get(f"/api/v2/dags/{dag}/dagRuns/{run}").raise_for_status().json()
                return str(found["state"])
        except httpx.HTTPError as error:
            return f"unknown: {error}"


def ended(own: AirflowOnPostgres, dag: str, run: str) -> str:
    """Wait until a run has ended; return how."""
    wait_for(lambda: own.state(dag, run) in ENDED, f"the end of {dag} {run}", seconds=600)
    return own.state(dag, run)


@pytest.fixture
def at_work(
    cluster: Cluster, at_work: Installation, monkeypatch: pytest.MonkeyPatch
) -> Installation:
    monkeypatch.setenv("SPARK_LOCAL_IP", cluster.network.address)
    free = {"airflow_port": daemons.choose_port()}
    at_work.settings = at_work.settings.model_copy(update=free)
    return at_work


@pytest.mark.timeout(7200)
def test_without_scheduler_or_database_for_a_while_each_dag_ends_right(
    cluster: Cluster,
    at_work: Installation,
    pytestconfig: pytest.Config,
) -> None:
    airflow.disable_schedules(at_work.settings)
    own, random_ = AirflowOnPostgres(at_work.settings, cluster.database), by_seed("airflow")
    with own.up():
        for number in range(pytestconfig.option.faults):
            work, fault = random_.choice([*WORK]), random_.choice([*own.faults()])
            work = work if number else "compaction"
            at_work.give(work)
            conf = {"week": str(at_work.week)} if work == "send" else {}
            dag = WORK[work].name
            run = own.start_run(dag, conf)
            time.sleep(random_.uniform(0, LONGEST_WAIT_SECONDS))
            with own.faults()[fault]:
                time.sleep(FAULT_SECONDS)
            own.await_health()
            state = ended(own, dag, run)
            if state == "failed":
                assert ended(own, dag, own.start_run(dag, conf)) == "success"
            at_work.holds(work)
