"""The environment of the embedded Airflow: its settings, secrets and connection, our settings."""

import base64
import json
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

from shardpost.checkout import DAGS, PLUGINS
from shardpost.settings import Settings
from shardpost.weekly_email.model.week import IsoWeek

HOST = "127.0.0.1"
USER = "admin"
PARALLEL_TASKS = 4
BIN = Path(sys.executable).parent
# May be set to a cluster's connection; else Spark runs where the commands run it.
METRICS = "AIRFLOW__METRICS__"
SPARK_CONNECTION = "AIRFLOW_CONN_SPARK_DEFAULT"
DATABASE = "shardpost.embedded.CONNECT"
API_SERVER = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": f"{DATABASE}_API"}
FIRST_WEEK = "SHARDPOST_WEEKLY_FIRST"


def address(settings: Settings) -> str:
    """Return the URL of UI and API."""
    return f"http://{HOST}:{settings.airflow_port}"


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
    spark = {"conn_type": "spark", "host": settings.spark_master}
    spark_connection = json.dumps(spark | {"extra": {"deploy-mode": "client"}})
    this_week = {FIRST_WEEK: str(IsoWeek.of(datetime.now(UTC)))}
    fresh = {
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": str(PARALLEL_TASKS),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:ADMIN",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(settings.airflow_port),
        "AIRFLOW__API__BASE_URL": address(settings),  # tasks call the API there
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__DEFAULT_WRAP": "True",  # the sentence that says why a task failed is long
        # Seconds after which a task that a killed scheduler has left is run again.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": DATABASE,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS_ASYNC": DATABASE,
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "NO_COLOR": "1",
        "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",  # finds spark-submit
        SPARK_CONNECTION: os.environ.get(SPARK_CONNECTION) or spark_connection,
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
