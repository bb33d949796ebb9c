"""The embedded Airflow: four processes on loopback, with SQLite and the LocalExecutor.

Not `airflow standalone`: it opens log servers on all interfaces, and its components outlive it.
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
    database,
    password,
    process_environment,
)
from shardpost.embedded.daemons import (
    Daemon,
    log_end,
    port_accepts,
    require_free_port,
    stop_together,
    wait_until,
)
from shardpost.errors import ShardpostError
from shardpost.settings import Settings

START_SECONDS = 180.0
SCHEDULER_STOP_SECONDS = 15.0  # for its running tasks; it would wait for them for ever
STOP_SECONDS = 5.0  # of the others, which have nothing to finish; the triggerer may take 10
NEVER = datetime.min.replace(tzinfo=UTC)
# None at all, or that of another program on this port.
_NO_ANSWER = (
    *(OSError, http.client.HTTPException, ValueError),
    *(LookupError, AttributeError, TypeError, RecursionError),
)
# Started in reverse, and the scheduler stopped first, since a task needs the API server.
PROCESSES = {
    "scheduler": ["scheduler", "--skip-serve-logs"],
    "triggerer": ["triggerer", "--skip-serve-logs"],
    "dag-processor": ["dag-processor"],
    "api-server": ["api-server"],
}
# In the environment of all descendants of the four: finds a Spark driver whose parents are gone.
HOME_VARIABLE = "EMBEDDED_AIRFLOW"


def start(settings: Settings) -> None:
    """Start what is not running; return when Airflow reports all of it as healthy."""
    missing = [name for name, daemon in _daemons(settings, {}).items() if not daemon.alive]
    if "api-server" in missing:
        require_free_port(settings.airflow_port, "Airflow", "SHARDPOST_AIRFLOW_PORT")
    if "scheduler" in missing:
        _kill_orphans(settings)
    own = {HOME_VARIABLE: str(settings.home)}
    daemons = _daemons(settings, process_environment(settings) | own if missing else {})
    if missing:
        prepare(settings)
    since = datetime.now(UTC) if missing else NEVER
    what = f"Airflow at {address(settings)}"
    for name in reversed(PROCESSES):
        if name == "scheduler":  # its first tasks would fail without an API server
            others = [daemon for other, daemon in daemons.items() if other != name]
            wait_until(lambda: port_accepts(settings.airflow_port), what, START_SECONDS, others)
        if name in missing:
            daemons[name].stop()  # ends what a crashed one left of its process group
            daemons[name].start()
    wait_until(
        lambda: not _unhealthy_parts(settings, since), what, START_SECONDS, list(daemons.values())
    )


def prepare(settings: Settings) -> None:
    """Choose the password, and create or migrate the database, if need be; `start` does so too."""
    password(settings)
    migrated_to = database(settings).with_name("migrated-to")
    version = metadata.version("apache-airflow")
    is_known = migrated_to.exists() and migrated_to.read_text() == version
    file = database(settings)
    if is_known and file.exists() and file.stat().st_size:  # SQLite leaves an empty one
        return
    log = settings.folder("logs") / "airflow-db-migrate.log"
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
    migrated_to.write_text(version)


def stop(settings: Settings) -> None:
    """End the scheduler, then the others, then every Spark job of a task that still runs."""
    daemons = _daemons(settings, {})
    daemons.pop("scheduler").stop(SCHEDULER_STOP_SECONDS)
    stop_together(list(daemons.values()), STOP_SECONDS)
    _kill_orphans(settings)


def state(settings: Settings) -> dict[str, str]:
    """Return `state` (`up`, `down`, or what is wrong), `address`, `user` and `password`."""
    alive = {name for name, daemon in _daemons(settings, {}).items() if daemon.alive}
    if not alive:
        return {"state": "down"}
    if dead := [name for name in PROCESSES if name not in alive]:
        text = f"broken: not running: {', '.join(dead)}"
    elif unhealthy := _unhealthy_parts(settings):
        text = f"unhealthy: {', '.join(unhealthy)}"
    else:
        text = "up"
    return {
        "state": text,
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


def _unhealthy_parts(settings: Settings, since: datetime = NEVER) -> list[str]:
    """Name the parts that Airflow does not report as healthy, or without a heartbeat since."""
    connection = http.client.HTTPConnection(HOST, settings.airflow_port, timeout=10)
    try:
        connection.request("GET", "/api/v2/monitor/health")
        parts: dict[str, dict[str, str]] = json.load(connection.getresponse())
        return [name for name, part in parts.items() if not _is_healthy(part, since)]
    except _NO_ANSWER:
        return ["the API server does not answer"]
    finally:
        connection.close()


def _is_healthy(part: Mapping[str, str], since: datetime) -> bool:
    """Tell whether a part is healthy; Airflow reports a killed one as healthy for 30 s more."""
    beats = [text for name, text in part.items() if name.endswith("_heartbeat")]
    healthy = part["status"] == "healthy"
    return healthy and all(datetime.fromisoformat(text) >= since for text in beats)


def _kill_orphans(settings: Settings) -> None:
    parents = [pid for daemon in _daemons(settings, {}).values() if (pid := daemon.pid)]
    own = set(parents)  # with all their descendants
    for pid in parents:
        with suppress(psutil.NoSuchProcess):
            own |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    home = str(settings.home)
    ours = [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(HOME_VARIABLE) == home
    ]
    orphans = [process for process in ours if process.pid not in own]
    for process in orphans:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(orphans, timeout=STOP_SECONDS)
