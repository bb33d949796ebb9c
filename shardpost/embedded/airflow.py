"""The embedded Airflow: four processes on loopback, with SQLite and the LocalExecutor.

Not `airflow standalone`: it opens log servers on all interfaces, and its components outlive it.
"""

import base64
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from importlib.resources import files
from io import StringIO
from pathlib import Path

import httpx
import psutil
from dotenv import dotenv_values

from shardpost.checkout import DAGS, PLUGINS
from shardpost.embedded.daemons import (
    LOOPBACK,
    Daemon,
    log_end,
    port_accepts,
    require_free_port,
    stop_together,
    wait_until,
)
from shardpost.errors import ShardpostError, UsageError
from shardpost.settings import Settings
from shardpost.settings.loading import INSTALLATIONS
from shardpost.settings.variables import PREFIX
from shardpost.weekly_email.model.week import IsoWeek

USER = "admin"
BIN = Path(sys.executable).parent
METRICS = "AIRFLOW__METRICS__"
API_SERVER = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "shardpost.embedded.CONNECT_API"}
FIRST_WEEK = "SHARDPOST_WEEKLY_FIRST"


def address(settings: Settings) -> str:
    """Return the URL of UI and API."""
    return f"http://{LOOPBACK}:{settings.airflow_port}"


def process_environment(settings: Settings) -> dict[str, str]:
    """Return a process's environment; of another Airflow's variables, only those of metrics."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name.startswith(METRICS) or not name.startswith("AIRFLOW_")
    }
    return inherited | environment(settings)


def database(settings: Settings) -> Path:
    """Return the file of its SQLite database."""
    return settings.home / "airflow" / "airflow.db"


def task_logs(settings: Settings) -> Path:
    """Return the folder of the logs of its tasks."""
    return settings.home / "airflow" / "logs"


def environment(settings: Settings) -> dict[str, str]:
    """Return the variables of a process of this Airflow, with our settings."""
    home, logs = settings.home / "airflow", task_logs(settings)
    # May be set to a cluster's connection; else Spark runs where the commands run it.
    connection_variable = f"AIRFLOW_CONN_{settings.connection_ids['spark'].upper()}"
    spark = {"conn_type": "spark", "host": settings.spark_master}
    spark_connection = json.dumps(spark | {"extra": {"deploy-mode": "client"}})
    this_week = {FIRST_WEEK: str(IsoWeek.of(datetime.now(UTC)))}
    fresh = {
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }
    of_all = StringIO(files(__package__).joinpath("airflow.env").read_text())
    return {
        **{name: text or "" for name, text in dotenv_values(stream=of_all).items()},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:ADMIN",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(settings.airflow_port),
        "AIRFLOW__API__BASE_URL": address(settings),  # tasks call the API there
        "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",  # finds spark-submit
        connection_variable: os.environ.get(connection_variable) or spark_connection,
        # Every path that a generated airflow.cfg names, for one restored from another home.
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PLUGINS),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database(settings)}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(logs),
        "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": f"{logs}/dag_processor",
        **_kept(settings, "secrets.json", fresh),
        **with_login(settings).environ(),
        # Scheduled runs begin with the week of the first start.
        FIRST_WEEK: settings.weekly_first
        or _kept(settings, "first-start.json", this_week)[FIRST_WEEK],
    }


def disable_schedules(settings: Settings) -> None:
    """Let this Airflow, before its first start, run nothing but what is triggered by hand."""
    config = settings.folder("airflow") / "airflow.cfg"
    config.write_text("[scheduler]\nuse_job_schedule = False\n")


def with_login(settings: Settings) -> Settings:
    """Return the settings with an Airflow to start runs in: this one, where none is set."""
    if settings.airflow_url is not None:
        return settings
    login = {"airflow_user": USER, "airflow_password": password(settings)}
    return settings.model_copy(update={"airflow_url": address(settings), **login})


def password(settings: Settings) -> str:
    """Return the password of USER; the first call chooses a random one."""
    return _kept(settings, "passwords.json", {USER: secrets.token_urlsafe(12)})[USER]


def _kept(settings: Settings, name: str, fresh: dict[str, str]) -> dict[str, str]:
    """Return what the file holds; the first call writes `fresh`, readable by its owner only."""
    path = settings.home / "airflow" / name
    if not path.exists():
        settings.folder("airflow")
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        beside.touch(mode=0o600)
        beside.write_text(json.dumps(fresh))
        beside.replace(path)
    kept: dict[str, str] = json.loads(path.read_text())
    return kept


START_SECONDS = 180.0
SCHEDULER_STOP_SECONDS = 15.0  # for its running tasks; it would wait for them for ever
STOP_SECONDS = 5.0  # of the others, which have nothing to finish; the triggerer may take 10
NEVER = datetime.min.replace(tzinfo=UTC)
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
            daemons[name].stop()  # ends what a crashed one left of its session
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


# Prints the last line of each error by which a DAG cannot be parsed.
_PARSE = """
from airflow.dag_processing.dagbag import DagBag
for error in DagBag().import_errors.values():
    print(error.strip().splitlines()[-1])
"""
_REFUSED = "shardpost.errors.UsageError: "


def require_task_options(settings: Settings) -> None:
    """Refuse a wrong SHARDPOST_TASK_OPTIONS, by the DAGs that have those tasks; UsageError."""
    if settings.task_options is None:
        return
    done = subprocess.run(
        [sys.executable, "-c", _PARSE],
        env=process_environment(settings) | {INSTALLATIONS: ""},  # a named one breaks no DAG
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = {line for line in done.stdout.splitlines() if line.startswith(_REFUSED)}
    if wrong:
        raise UsageError("; ".join(sorted(line.removeprefix(_REFUSED) for line in wrong)))


def other_settings(settings: Settings) -> list[str]:
    """Return the settings of which running processes were started with another value."""
    now, found = process_environment(settings), set[str]()
    for pid in filter(None, (daemon.pid for daemon in _daemons(settings, {}).values())):
        with suppress(psutil.Error):
            then = psutil.Process(pid).environ()
            if HOME_VARIABLE in then:  # the API server overwrites its own
                found |= {name for name, _ in now.items() ^ then.items() if name.startswith(PREFIX)}
    return sorted(found)


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
    url = f"{address(settings)}/api/v2/monitor/health"
    try:
        parts: dict[str, dict[str, str]] = httpx.get(url, timeout=10, trust_env=False).json()
        return [name for name, part in parts.items() if not _is_healthy(part, since)]
    except Exception:  # none, or that of another program on this port
        return ["the API server does not answer"]


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
