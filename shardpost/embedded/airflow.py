"""The embedded Airflow: four processes on loopback, with SQLite and the LocalExecutor.

Not `airflow standalone`: that opens log servers on all interfaces, and its components outlive it.
"""

import http.client
import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata

import psutil

from shardpost.embedded.airflow_home import (
    API_SERVER,
    BIN,
    HOST,
    USER,
    address,
    password,
    process_environment,
)
from shardpost.embedded.ports import accepts, require_free
from shardpost.embedded.process import Daemon, log_end, wait_until
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

START_SECONDS = 180.0
SCHEDULER_STOP_SECONDS = 15.0  # it would wait for its running tasks for ever; they get this long
STOP_SECONDS = 5.0  # the others have nothing to finish; the triggerer now and then takes 10
NEVER = datetime.min.replace(tzinfo=UTC)
# In the order of a clean stop, and from the end when starting: a task needs the API server.
PROCESSES = {
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "api-server": ["api-server"],
}
# Marks all that descends from the four, so that a Spark driver is found that has lost its parents.
MARK = "EMBEDDED_AIRFLOW"


def start(settings: Settings) -> None:
    """Bring up what is not up; returns when Airflow says that all of it is healthy."""
    missing = [name for name, daemon in _daemons(settings, {}).items() if not daemon.alive]
    if "api-server" in missing:
        require_free(settings.airflow_port, "Airflow", "SHARDPOST_AIRFLOW_PORT")
    if "scheduler" in missing:
        _end_leftovers(settings)
    daemons = _daemons(settings, _marked_environment(settings) if missing else {})
    if missing:
        password(settings)
        _migrate(settings)
    since = datetime.now(UTC) if missing else NEVER
    what = f"Airflow at {address(settings)} is not healthy"
    for name in reversed(PROCESSES):
        if name == "scheduler":  # its first tasks would fail without an API server
            others = [daemon for other, daemon in daemons.items() if other != name]
            wait_until(lambda: accepts(settings.airflow_port), what, START_SECONDS, others)
        if name in missing:
            daemons[name].stop()  # what a crashed one left of its process group
            daemons[name].start()
    wait_until(lambda: not _sick(settings, since), what, START_SECONDS, list(daemons.values()))


def stop(settings: Settings) -> None:
    """End all four, in order, and every Spark job of a task that is still running."""
    for name, daemon in _daemons(settings, {}).items():
        daemon.stop(SCHEDULER_STOP_SECONDS if name == "scheduler" else STOP_SECONDS)
    _end_leftovers(settings)


def state(settings: Settings) -> dict[str, str]:
    """Return `state` (`up`, `down`, or what is wrong), `address`, `user`, `password`."""
    alive = {name for name, daemon in _daemons(settings, {}).items() if daemon.alive}
    if not alive:
        return {"state": "down"}
    if dead := [name for name in PROCESSES if name not in alive]:
        said = f"broken: not running: {', '.join(dead)}"
    else:
        said = f"unhealthy: {', '.join(sick)}" if (sick := _sick(settings)) else "up"
    return {
        "state": said,
        "address": address(settings),
        "user": USER,
        "password": password(settings),
    }


def _daemons(settings: Settings, env: Mapping[str, str]) -> dict[str, Daemon]:
    return {
        name: Daemon(
            name=f"airflow {name}",
            command=[str(BIN / "airflow"), *arguments],
            env={**env, **(API_SERVER if name == "api-server" else {})},
            log=settings.home / "logs" / f"airflow-{name}.log",
            pid_file=settings.home / "run" / f"airflow-{name}.pid",
        )
        for name, arguments in PROCESSES.items()
    }


def _marked_environment(settings: Settings) -> dict[str, str]:
    return process_environment(settings) | {MARK: str(settings.home)}


def _migrate(settings: Settings) -> None:
    """Create Airflow's tables, or bring them to this version of Airflow, where they are not."""
    home = settings.home / "airflow"
    done_for, version = home / "migrated-to", metadata.version("apache-airflow")
    if done_for.exists() and done_for.read_text() == version and (home / "airflow.db").exists():
        return
    log = settings.home / "logs" / "airflow-db-migrate.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        done = subprocess.run(
            [str(BIN / "airflow"), "db", "migrate"],
            env=process_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise ShardpostError(f"Airflow's database cannot be set up; {log_end(log)}")
    done_for.write_text(version)


def _sick(settings: Settings, since: datetime = NEVER) -> list[str]:
    """Name the parts that Airflow does not call healthy, or that gave no sign of life since."""
    connection = http.client.HTTPConnection(HOST, settings.airflow_port, timeout=10)
    try:
        connection.request("GET", "/api/v2/monitor/health")
        parts: dict[str, dict[str, str]] = json.load(connection.getresponse())
        return [name for name, part in parts.items() if not _is_well(part, since)]
    except (OSError, ValueError, LookupError, http.client.HTTPException):
        return ["the API server does not answer"]
    finally:
        connection.close()


def _is_well(part: Mapping[str, str], since: datetime) -> bool:
    """Tell whether a part is healthy; of one that was killed, Airflow says so for 30 s more."""
    beats = [text for name, text in part.items() if name.endswith("_heartbeat")]
    well = part["status"] == "healthy"
    return well and all(datetime.fromisoformat(text) >= since for text in beats)


def _alive(settings: Settings) -> set[int]:
    """Return the pids of those of the four that live, with all that they started."""
    found = [pid for daemon in _daemons(settings, {}).values() if (pid := daemon.pid)]
    pids = set(found)
    for pid in found:
        with suppress(psutil.NoSuchProcess):
            pids |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return pids


def _end_leftovers(settings: Settings) -> None:
    """Kill what a process of this stack's Airflow started and did not outlive."""
    home, alive = str(settings.home), _alive(settings)
    ours = [process for process in psutil.process_iter() if _mark_of(process) == home]
    lost = [process for process in ours if process.pid not in alive]
    for process in lost:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(lost, timeout=STOP_SECONDS)


def _mark_of(process: psutil.Process) -> str | None:
    try:
        mark: str | None = process.environ().get(MARK)
    except psutil.Error:
        return None
    return mark
