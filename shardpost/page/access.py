"""Who may see and act: Airflow's login and rights, and forms that only our own pages can send.

Airflow asks nobody who they are in an app of a plugin, takes requests from foreign origins, and
its cookie can be read by scripts. So each route asks for the login and for rights on a DAG, and
each action for a token that was made for this user and this action, by Airflow's own secret key.
Runs of our DAGs are started in the name of that user, by Airflow itself, in its API server.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request
from fastapi.params import Depends as Dependency
from itsdangerous import BadData, SignatureExpired, URLSafeTimedSerializer
from starlette.datastructures import FormData

from shardpost.errors import ShardpostError, UsageError, single_line

FORM_SECONDS = 3600
_SALT = "shardpost.page"
# What a page shows belongs to these DAGs; whoever may see the DAG may see the page.
POSITIONS, EMAILS, LETTERS, RUNS, TABLES, KAFKA, REBUILDS = (
    "compact_positions",
    "weekly_email",
    "sweep_dead_letters",
    "dispatch_run_requests",
    "maintain_tables",
    "watch_kafka",
    "rebuild_tables",
)
CLIENTS = (POSITIONS, EMAILS, LETTERS)  # who may see all of these may see clients
CLIENTS_HIDDEN = f"Clients are named here to users who may see the DAGs {', '.join(CLIENTS)}."


def sees(dag: str) -> Dependency:
    """Return the condition of a page: its user may see that DAG."""
    return _allowed("see", may_see, dag)


def acts(dag: str) -> list[Dependency]:
    """Return the conditions of an action: its user may run that DAG, and sent our form."""
    return [_allowed("run", may_run, dag), Depends(require_own_form)]


def _allowed(what: str, may: Callable[[BaseUser, str], bool], dag: str) -> Dependency:
    def check(user: GetUserDep, request: Request) -> None:
        own = request.app.state.own.id(dag)
        if not may(user, own):
            raise HTTPException(403, f"for users who may {what} the DAG {own}")

    return Depends(check)  # type: ignore[no-any-return]


def may_see(user: BaseUser, dag: str) -> bool:
    """Tell whether a user may see a DAG, and what belongs to it."""
    return is_allowed(user, dag, "GET")


def may_run(user: BaseUser, dag: str) -> bool:
    """Tell whether a user may run a DAG: only then its forms are shown."""
    return is_allowed(user, dag, "POST", DagAccessEntity.RUN)


def is_allowed(
    user: BaseUser, dag: str, method: ResourceMethod, entity: DagAccessEntity | None = None
) -> bool:
    """Ask Airflow's auth manager."""
    details = DagDetails(id=dag, team_name=DagModel.get_team_name(dag))
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=entity, details=details, user=user
    )


def form_token(user: str, path: str) -> str:
    """Return the token of a user's form for an action; it is valid for an hour."""
    return _serializer().dumps([user, path])


async def require_own_form(request: Request, user: GetUserDep) -> None:
    """Refuse, with 403, an action whose form is not ours, is another user's, or is too old."""
    _require_same_origin(request)
    form = await request.form()
    try:
        sealed = _serializer().loads(str(form.get("token", "")), max_age=FORM_SECONDS)
    except SignatureExpired:
        _keep(request, form)
        raise HTTPException(403, "the form is older than an hour: open the page again") from None
    except BadData:
        raise HTTPException(403, "expected a form from this page: open it again") from None
    if sealed != [user.get_name(), request.url.path]:
        raise HTTPException(403, "the form is for another user or action: open the page again")
    _keep(request, form)


def _keep(request: Request, form: FormData) -> None:
    """Keep what a form of ours has sent, for the page that says why it was refused."""
    request.state.sent = [
        (name, text)
        for name, text in form.multi_items()
        if name != "token" and isinstance(text, str) and text
    ]


def _require_same_origin(request: Request) -> None:
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    is_foreign = site not in {None, "same-origin"}
    if origin is not None and site is None:
        is_foreign = urlsplit(origin).netloc != request.headers.get("host")
    if is_foreign:
        raise HTTPException(
            403, f"expected a form from this site, found a form from {origin or site}"
        )


def sealed(user: str, text: str) -> str:
    """Return a text for a user in a form that only this Airflow can have made."""
    return _serializer(f".said.{user}").dumps(text)


def unsealed(user: str, text: str) -> str:
    """Return what was sealed for that user; "" if it was not, or more than an hour ago."""
    try:
        return str(_serializer(f".said.{user}").loads(text, max_age=FORM_SECONDS))
    except BadData:
        return ""


def _serializer(use: str = "") -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(conf.get("api", "secret_key"), salt=_SALT + use)


LONGEST_NOTE = 1000  # of Airflow


def start_run(user: str, dag: str, conf: dict[str, Any], why: str) -> str:
    """Start a run of a DAG in the name of a user, with the reason as its note; return its id.

    UsageError for params that the DAG refuses; ShardpostError if Airflow has no such DAG, or if it
    is paused, so that the run would only wait.
    """
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.exceptions import DagNotFound
    from airflow.utils.types import DagRunTriggeredByType

    known = DagModel.get_current(dag)
    if known is None or known.is_stale:
        raise ShardpostError(
            f"Airflow has no DAG {dag}: `shardpost airflow dags list` lists all DAGs"
        )
    if known.is_paused:
        raise ShardpostError(
            f"the DAG {dag} is paused in Airflow, so that a run of it would wait: unpause it first"
        )
    try:
        run = trigger_dag(
            dag,
            triggered_by=DagRunTriggeredByType.UI,
            triggering_user_name=user,
            conf=conf,
            note=single_line(f"{user}: {why}", LONGEST_NOTE),
        )
    except DagNotFound as error:
        raise ShardpostError(str(error)) from None
    except ValueError as error:  # a param that is not what the DAG declares
        raise UsageError(f"the DAG {dag} refuses this run: {error}") from None
    if run is None:
        raise ShardpostError(f"Airflow started no run of the DAG {dag}, and gave no reason")
    return str(run.run_id)


def unfinished_run(dag: str) -> str | None:
    """Return the id of the oldest run of a DAG that has not ended; None if there is none."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import State
    from sqlalchemy import select

    of_dag = select(DagRun.run_id).where(DagRun.dag_id == dag)
    unfinished = of_dag.where(DagRun.state.in_(State.unfinished_dr_states))
    with create_session() as session:
        return session.scalars(unfinished.order_by(DagRun.run_after).limit(1)).first()
