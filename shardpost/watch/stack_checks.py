"""The doctor's checks of the stack: its ports, the mail server, Spark, and the embedded Airflow.

The mail server gets a connection and no mail; Airflow is only checked if it is the embedded one.
"""

import smtplib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from shardpost.embedded import airflow, daemons, stack
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.run_requests.airflow_api import AirflowApi, log_in
from shardpost.spark.submit import conf_on, require_master
from shardpost.watch.model.doctor_finding import DoctorFinding, error, ok, refused, unknown, warning
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of
from shardpost.weekly_email.smtp_server import SenderSettings, SmtpServer, connect, error_text


def check_ports(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the port of each part that Shardpost runs itself.

    Whether Airflow is healthy is said by `check_airflow`, once and with one cure.
    """
    for part in stack.parts(installation.settings):
        name = f"port of {part.name}"
        if daemons.port_is_free(part.port):
            yield ok(name, f"{part.port} is free")
            continue
        state = part.service.state(installation.settings)
        if state["state"] == stack.DOWN:
            found = f"{part.port} is in use by {daemons.port_owner(part.port)}"
            cure = f"stop that process, or set {part.setting} to a free port"
            yield error(name, found, "free, or held by the stack of this SHARDPOST_HOME", cure)
        elif state["state"] == stack.UP or part.name == stack.AIRFLOW:
            yield ok(name, f"{part.port} is held by {part.title} of this SHARDPOST_HOME")
        else:
            found = state.get("detail", state["state"])
            yield error(name, f"{part.title}: {found}", "an answer", stack.RESTART)


def check_mail_server(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the mail settings; connect, with TLS where it is set, and without the login."""
    try:
        sender = installation.values(SenderSettings).sender(installation.values(SmtpServer))
        yield ok("mail settings", f"from {sender.address}")
    except ShardpostError as problem:
        yield refused("mail settings", problem)
    try:
        templates = templates_of(installation.values(TemplateSettings))
    except ShardpostError as problem:
        yield refused("mail templates", problem)
    else:
        languages = ", ".join(sorted(templates.languages))
        others = f"; with templates for the languages {languages}" if languages else ""
        yield ok("mail templates", f"{templates.folder or 'the shipped ones'}{others}")
    yield from check_unsubscribe_link(installation)
    server = installation.values(SmtpServer)
    try:
        # Without the login: passwords that are tried again and again lock accounts.
        smtp = connect(replace(server, smtp_user=None))
    except (OSError, smtplib.SMTPException) as problem:
        cure = "see SHARDPOST_SMTP_HOST, _PORT and _TLS"
        if server.smtp_host is None:
            is_free = daemons.port_is_free(server.smtp_port)
            cure = "shardpost up" if is_free else "see the fix of `port of smtp`"
        found = f"no greeting from {server.address}: {error_text(problem)}"
        yield error("mail server", found, f"a greeting (TLS: {server.smtp_tls})", cure)
        return
    with suppress(OSError, smtplib.SMTPException):
        smtp.quit()
    login = "" if server.smtp_user is None else "; the login was not tried"
    yield ok("mail server", f"{server.address} greets (TLS: {server.smtp_tls}){login}")


def check_unsubscribe_link(installation: Installation) -> Iterator[DoctorFinding]:
    """Warn about an unsubscribe link that anybody can forge."""
    if installation.values(SenderSettings).can_be_forged:
        yield warning(
            "unsubscribe link",
            "SHARDPOST_UNSUBSCRIBE_URL names the client, and has no {token}: anybody who knows or"
            " guesses a client's id can unsubscribe it",
            "a link with {token}, which cannot be made for another client",
            "set SHARDPOST_UNSUBSCRIBE_SECRET, and put {token} into the URL: docs/weekly-email.md",
        )


def check_spark(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the master of commands, and the file of Spark's properties; ShardpostError if wrong."""
    master, conf = installation.settings.spark_master, installation.settings.spark_conf
    conf_on(installation, master, {})
    require_master(master)
    connection = installation.settings.connection_ids["spark"]
    more = f", with {conf}" if conf else ""
    yield ok("spark", f"{master}{more}; DAGs use the connection {connection}")


API_SECONDS = 5.0
MOST_LISTED = 100


def check_airflow(installation: Installation, _now: datetime) -> Iterator[DoctorFinding]:
    """Check the embedded Airflow; another one is left alone."""
    if installation.settings.airflow_url is not None:
        yield unknown(
            "airflow", f"not checked: {installation.settings.airflow_url} is not the embedded one"
        )
        return
    state = airflow.state(installation.settings)
    if state["state"] == stack.DOWN:
        yield warning("airflow", "down: no scheduled runs", "up", "shardpost up")
        return
    if state["state"] != stack.UP:
        # `up` starts processes that are not running, and leaves alone those that are.
        cure = "shardpost up" if state["state"].startswith("broken") else stack.RESTART
        yield error("airflow", state["state"], "up", cure)
        return
    yield ok("airflow", f"up at {state['address']}")
    with log_in(state["address"], state["user"], state["password"], API_SECONDS) as api:
        yield from check_dags(api)


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
