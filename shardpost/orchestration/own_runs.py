"""The runs of the Airflow that a task is in, by its task API: without a URL, a user, a password.

By the messages that a task exchanges with its supervisor, also those of `TriggerDagRunOperator`.
`airflow.sdk` has no function that starts one of several runs, or says when a run ended.
(Decision 0045.)
"""

from typing import Any

from airflow.sdk.api.client import ServerResponseError
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetDag, GetDagRun, TriggerDagRun

from shardpost.errors import ShardpostError
from shardpost.run_requests.airflow_api import (
    BAD_REQUEST,
    ENDED,
    NOT_FOUND,
    UNPROCESSABLE,
    AirflowUnreachableError,
    rejected,
)
from shardpost.run_requests.model.commands import AirflowRun


class RefusedByApiError(ShardpostError):
    """The task API answered with an error of the 4xx range."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"Airflow's task API: {status} {text}")
        self.status, self.text = status, text


class OwnRuns:
    """As `AirflowApi` for a dispatch; it can be used in a task only."""

    def run(self, dag: str, run_id: str) -> AirflowRun | None:
        """Return a run; None if Airflow has no run with that id."""
        try:
            found = _answer(GetDagRun(dag_id=dag, run_id=run_id))
        except RefusedByApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        ended_at = found.end_date or found.start_date or found.run_after
        return AirflowRun(found.state, ended_at if found.state in ENDED else None)

    def start(self, dag: str, run_id: str, conf: dict[str, Any], note: str) -> str | None:
        """Start a run under that id, once however often this is called.

        Return why Airflow rejects it; None where it accepted it, now or before.
        """
        form = TriggerDagRun(dag_id=dag, run_id=run_id, conf=conf, note=note)
        is_known = False
        try:
            is_paused = _answer(GetDag(dag_id=dag)).is_paused
            is_known = True
            if is_paused:
                return f"DAG {dag} is paused in Airflow"
            _answer(form)  # also where there is a run of that id
        except RefusedByApiError as error:
            if error.status == NOT_FOUND:
                gone = f"DAG {dag} is stale in Airflow: no file defines it any more"
                return gone if is_known else f"Airflow has no DAG {dag}"
            if error.status in (BAD_REQUEST, UNPROCESSABLE):
                return rejected(error.text)
            raise
        except OverflowError as error:  # an integer of more than 64 bits
            return rejected(str(error))
        return None


def _answer(message: Any) -> Any:
    """Return the answer to a message; AirflowUnreachableError for none, RefusedByApiError for 4xx.

    In a trial run (`airflow dags test`) the answer to a request is raised as it is.
    """
    try:
        return task_runner.SUPERVISOR_COMMS.send(message)
    except AirflowRuntimeError as error:
        detail = error.error.detail or {}
        status, body = detail.get("status_code"), detail.get("detail") or detail
    except ServerResponseError as error:
        status, body = error.response.status_code, error.response.json()
    inner = body.get("detail", body)
    text = inner.get("message", inner) if isinstance(inner, dict) else inner
    if status is None or status >= 500:
        raise AirflowUnreachableError(f"Airflow's task API does not answer ({status}: {text})")
    raise RefusedByApiError(status, " ".join(str(text).split()))
