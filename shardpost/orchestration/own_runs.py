"""The runs of the Airflow that a task is in, by its task API: without a URL, a user, a password.

By the messages that a task exchanges with its supervisor, also those of `TriggerDagRunOperator`.
`airflow.sdk` has no function that starts one of several runs, or says when a run ended.
(Decision 0045.)
"""

from typing import Any

from airflow.sdk.api.client import ServerResponseError
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetDag, GetDagRun, GetDagRunState, TriggerDagRun

from shardpost.errors import ShardpostError, single_line
from shardpost.run_requests.airflow_api import (
    BAD_REQUEST,
    ENDED,
    MAX_REASON_CHARACTERS,
    NOT_FOUND,
    REJECTED,
    UNPROCESSABLE,
    AirflowUnreachableError,
)
from shardpost.run_requests.model.commands import AirflowRun

# No answer, or one of a proxy before the API server. A 500 may be of one DAG: Airflow answers so
# for one that it cannot deserialize.
UNREACHABLE = (None, 502, 503, 504)


class OwnRuns:
    """As `AirflowApi` for a dispatch; it can be used in a task only, but for `state`."""

    def run(self, dag: str, run_id: str) -> AirflowRun | None:
        """Return a run; None if Airflow has no run with that id."""
        found, status = _ask(GetDagRun(dag_id=dag, run_id=run_id), NOT_FOUND)
        if status:
            return None
        ended_at = found.end_date or found.start_date or found.run_after
        return AirflowRun(found.state, ended_at if found.state in ENDED else None)

    def state(self, dag: str, run_id: str) -> str | None:
        """Return a run's state, also in a triggerer; None if Airflow has no run with that id."""
        found, status = _ask(GetDagRunState(dag_id=dag, run_id=run_id), NOT_FOUND)
        return None if status else str(found.state.value)

    def start(self, dag: str, run_id: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run under that id, once however often this is called.

        Return why Airflow rejects it; None where it accepted it, now or before.
        """
        found, status = _ask(GetDag(dag_id=dag), NOT_FOUND)
        if status:
            return f"Airflow has no DAG {dag}"
        if found.is_paused:
            return f"DAG {dag} is paused in Airflow"
        form = TriggerDagRun(dag_id=dag, run_id=run_id, conf=conf, note=note)
        found, status = _ask(form, BAD_REQUEST, NOT_FOUND, UNPROCESSABLE)
        if status == NOT_FOUND:
            return f"DAG {dag} is stale in Airflow: no file defines it any more"
        return f"{REJECTED}{single_line(found, MAX_REASON_CHARACTERS)}" if status else None


def _ask(message: Any, *expected: int) -> tuple[Any, int | None]:
    """Return (the answer, None), or the text and status of an expected error.

    ShardpostError for another one, AirflowUnreachableError for no answer. In a trial run (`airflow
    dags test`) an error is raised as it is.
    """
    try:
        return task_runner.SUPERVISOR_COMMS.send(message), None
    except OverflowError as error:  # an integer of more than 64 bits
        return str(error), UNPROCESSABLE
    except AirflowRuntimeError as error:
        detail = error.error.detail or {}
        status, body = detail.get("status_code"), detail.get("detail") or detail
    except ServerResponseError as error:
        status, body = error.response.status_code, error.response.json()
    inner = body.get("detail", body)
    text = inner.get("message", inner) if isinstance(inner, dict) else inner
    if status in UNREACHABLE:
        raise AirflowUnreachableError(f"Airflow's task API does not answer ({status}: {text})")
    if status not in expected:
        raise ShardpostError(f"Airflow's task API: {status} {text}")
    return str(text), status
