"""Runs of our DAGs, started by the user of the page: by Airflow itself, in its API server."""

from typing import Any

from shardpost.errors import ShardpostError, UsageError, single_line

LONGEST_NOTE = 1000  # of Airflow


def start_run(user: str, dag: str, conf: dict[str, Any], why: str) -> str:
    """Start a run of a DAG in the name of a user, with the reason as its note; return its id.

    UsageError for params that the DAG refuses; ShardpostError if Airflow has no such DAG, or if it
    is paused, so that the run would only wait.
    """
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.exceptions import DagNotFound
    from airflow.models.dag import DagModel
    from airflow.utils.types import DagRunTriggeredByType

    known = DagModel.get_current(dag)
    if known is None or known.is_stale:
        raise ShardpostError(f"Airflow has no DAG {dag}: `shardpost airflow dags list` names all")
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
