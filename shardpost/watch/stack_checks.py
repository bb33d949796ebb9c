"""The doctor's checks of the stack: its ports, the mail server, Spark, and the embedded Airflow.

The mail server gets a connection and no mail; Airflow is only checked if it is the embedded one.
"""

import smtplib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from shardpost.embedded import airflow, daemons, stack
from shardpost.errors import ShardpostError
from shardpost.run_requests.airflow_api import AirflowApi, log_in
from shardpost.settings import Settings
from shardpost.spark.submit import conf_on, require_master
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, unknown, warning
from shardpost.weekly_email.smtp_server import can_be_forged, connect, error_text, sender_of
from shardpost.wording import duration_text

RESTART = "shardpost down && shardpost up"


def check_ports(settings: Settings, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the port of each part that Shardpost runs itself.

    Whether Airflow is healthy is said by `check_airflow`, once and with one cure.
    """
    for part in stack.parts(settings):
        name = f"port of {part.name}"
        if daemons.port_is_free(part.port):
            yield ok(name, f"{part.port} is free")
            continue
        state = part.service.state(settings)
        if state["state"] == stack.DOWN:
            found = f"{part.port} is in use by {daemons.port_owner(part.port)}"
            cure = f"stop that process, or set {part.setting} to a free port"
            yield error(name, found, "free, or held by the stack of this SHARDPOST_HOME", cure)
        elif state["state"] == stack.UP or part.name == stack.AIRFLOW:
            yield ok(name, f"{part.port} is held by {part.title} of this SHARDPOST_HOME")
        else:
            found = state.get("detail", state["state"])
            yield error(name, f"{part.title}: {found}", "an answer", RESTART)


def check_mail_server(settings: Settings, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the mail settings; connect, with TLS where it is set, and without the login."""
    try:
        yield ok("mail settings", f"from {sender_of(settings).address}")
    except ShardpostError as problem:
        yield refused("mail settings", problem)
    yield from check_unsubscribe_link(settings)
    yield _greeting(settings)


def check_unsubscribe_link(settings: Settings) -> Iterator[DoctorFinding]:
    """Warn of a link to unsubscribe that anybody can make."""
    if can_be_forged(settings):
        yield warning(
            "unsubscribe link",
            "SHARDPOST_UNSUBSCRIBE_URL names the client, and has no {token}: whoever knows or"
            " guesses the id of a client unsubscribes it",
            "a link with {token}, which nobody can make for another client",
            "set SHARDPOST_UNSUBSCRIBE_SECRET, and put {token} into the URL: docs/weekly-email.md",
        )


def _greeting(settings: Settings) -> DoctorFinding:
    address = f"{settings.mail_server}:{settings.smtp_port}"
    try:
        # Without the login: passwords that are tried again and again lock accounts.
        smtp = connect(settings.model_copy(update={"smtp_user": None}))
    except (OSError, smtplib.SMTPException) as problem:
        cure = "see SHARDPOST_SMTP_HOST, _PORT and _TLS"
        if settings.smtp_host is None:
            is_free = daemons.port_is_free(settings.smtp_port)
            cure = "shardpost up" if is_free else "that of `port of smtp`"
        found = f"no greeting from {address}: {error_text(problem)}"
        return error("mail server", found, f"a greeting (TLS: {settings.smtp_tls})", cure)
    with suppress(OSError, smtplib.SMTPException):
        smtp.quit()
    login = "" if settings.smtp_user is None else "; the login was not tried"
    return ok("mail server", f"{address} greets (TLS: {settings.smtp_tls}){login}")


def check_spark(settings: Settings, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the master of commands, and the file of Spark's properties; ShardpostError if wrong."""
    conf_on(settings, settings.spark_master, {})
    require_master(settings.spark_master)
    more = f", with {settings.spark_conf}" if settings.spark_conf else ""
    yield ok("spark", f"{settings.spark_master}{more}; DAGs use the connection spark_default")


API_SECONDS = 5.0
LATE_SECONDS = 30.0
MOST_LISTED = 100


def check_airflow(settings: Settings, now: datetime) -> Iterator[DoctorFinding]:
    """Check the embedded Airflow; another one is left alone."""
    if settings.airflow_url is not None:
        yield unknown("airflow", f"not checked: {settings.airflow_url} is not the embedded one")
        return
    state = airflow.state(settings)
    if state["state"] == stack.DOWN:
        yield warning("airflow", "down: no scheduled runs", "up", "shardpost up")
        return
    if state["state"] != stack.UP:
        # `up` starts processes that are not running, and leaves alone those that are.
        cure = "shardpost up" if state["state"].startswith("broken") else RESTART
        yield error("airflow", state["state"], "up", cure)
        return
    yield ok("airflow", f"up at {state['address']}")
    with log_in(state["address"], state["user"], state["password"], API_SECONDS) as api:
        yield check_heartbeat(api.get("/api/v2/monitor/health")["scheduler"], now)
        yield from check_dags(api)


def check_heartbeat(scheduler: dict[str, str | None], now: datetime) -> DoctorFinding:
    """Check that the scheduler is alive: it sends a heartbeat every few seconds."""
    beat = scheduler["latest_scheduler_heartbeat"]
    cure = "see logs/airflow-scheduler.log in SHARDPOST_HOME; shardpost down && shardpost up"
    expected = f"one within {LATE_SECONDS:g} s"
    if beat is None:
        return error("airflow scheduler", "no heartbeat", expected, cure)
    age = now - datetime.fromisoformat(beat)
    found = f"last heartbeat {duration_text(age)} ago"
    if age.total_seconds() > LATE_SECONDS:
        return error("airflow scheduler", found, expected, cure)
    return ok("airflow scheduler", found)


def check_dags(api: AirflowApi) -> Iterator[DoctorFinding]:
    """Check that all files of DAGs can be imported, and that no DAG is paused."""
    broken = api.get(f"/api/v2/importErrors?limit={MOST_LISTED}")["import_errors"]
    for one in broken:
        reason = one["stack_trace"].strip().splitlines()[-1]
        cure = "fix the file; shardpost airflow dags list-import-errors"
        yield error(f"dag file {one['filename']}", reason, "a file that can be imported", cure)
    dags = api.get(f"/api/v2/dags?limit={MOST_LISTED}")["dags"]
    paused = [dag["dag_id"] for dag in dags if dag["is_paused"]]
    for dag in paused:
        cure = f"shardpost airflow dags unpause {dag}"
        yield warning(f"dag {dag}", "paused: not scheduled", "not paused", cure)
    if not broken and not paused:
        yield ok("airflow dags", f"{len(dags)}, none broken or paused")
