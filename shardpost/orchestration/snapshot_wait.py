"""Waiting for a compaction: a run of the weekly e-mail for which the newest snapshot is too old.

It waits without a slot, in Airflow's triggerer, also while the tables or Kafka are away. The tasks
after it check everything again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

from shardpost.errors import ShardpostError, TablesAwayError
from shardpost.installation import Installation
from shardpost.orchestration.connections import of_dag, task_installation
from shardpost.orchestration.tasks import alert_of_attention, failure, task_errors
from shardpost.run_requests.airflow_api import MAX_NOTE_CHARACTERS
from shardpost.spark.job import document_of, request_of
from shardpost.weekly_email.email_job import EmailRequest
from shardpost.wording import duration_text

log = logging.getLogger(__name__)

POLL_SECONDS = 15.0
# People are alerted so long after a run began; so often a compaction that failed is started again.
PATIENCE = timedelta(hours=1)


class SnapshotWait(BaseOperator):
    """Waits until the newest snapshot has what a run needs; it fails after `execution_timeout`.

    `request` makes the run's request; `compaction` is the DAG of which it starts a run, unless one
    is active. A dry run, and one that skips its week, do not wait: the task after it says why.
    """

    # Shown by the UI under "Rendered Templates" while the task waits.
    template_fields = ("waits_for",)
    overwrite_rtif_after_execution = True

    def __init__(
        self, *, request: Callable[[Context], EmailRequest], compaction: str, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.request_of, self.compaction, self.waits_for = request, compaction, ""
        self.most: timedelta = rest["execution_timeout"]

    @task_errors()
    def execute(self, context: Context) -> None:
        """Return at once if there is nothing to wait for."""
        from shardpost.weekly_email.prepared_week import why_behind

        asked, own = self.request_of(context), task_installation()
        behind = asked.is_real and _or_why_away(
            lambda: None if _why_skip(own, asked) else why_behind(own, asked)
        )
        if behind:
            self._wait(context, behind, context["dag_run"].start_date or datetime.now(UTC))

    @task_errors()
    def on_event(self, context: Context, event: dict[str, Any], since: str, alerts: int) -> None:
        """Succeed if the snapshot has all; else alert, and wait on or fail."""
        if "refused" in event:
            raise failure(event["refused"], event["exit_code"])
        began, behind = datetime.fromisoformat(since), event["behind"]

        def look() -> None:
            if why := _why_skip(task_installation(), self.request_of(context)):
                waited = duration_text(datetime.now(UTC) - began)
                raise AirflowFailException(f"a compaction came after {waited}, too late: {why}")

        if behind := behind or _or_why_away(look):
            self._wait(context, behind, began, alerts)

    def _wait(self, context: Context, behind: str, since: datetime, alerts: int = 0) -> None:
        now, to_alert = datetime.now(UTC), since + PATIENCE
        waited = duration_text(now - since)
        if now >= since + self.most:
            raise AirflowFailException(f"no compaction for {waited}: {behind}")
        if not alerts and now >= to_alert:
            alert_of_attention(context, [f"waiting for a compaction for {waited}: {behind}"])
            alerts = 1
        self.waits_for = f"{behind}. {_started(context, self.compaction, behind)}"
        log.info("waiting for a compaction: %s", self.waits_for)
        until = min(now + PATIENCE if alerts else to_alert, since + self.most)
        document = document_of(self.request_of(context), with_now=False)
        self.defer(
            trigger=SnapshotTrigger(context["ti"].dag_id, document, until.isoformat()),
            method_name=self.on_event.__name__,
            kwargs={"since": since.isoformat(), "alerts": alerts},
            timeout=until - now + PATIENCE,  # if the triggerer is down: the task is tried again
        )


class SnapshotTrigger(BaseTrigger):
    """Fires when the newest snapshot has what the request of a DAG's run needs, or at `until`."""

    def __init__(self, dag: str, request: str, until: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dag, self.request, self.until = dag, request, until
        self._installation: Installation | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments from which Airflow recreates the trigger."""
        given = {"dag": self.dag, "request": self.request, "until": self.until}
        return f"{__name__}.{type(self).__name__}", given

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield {"behind": what the snapshot lacks, or None}, or an error, once."""
        until = datetime.fromisoformat(self.until)
        try:
            while (behind := await asyncio.to_thread(self._look)) and datetime.now(UTC) < until:
                await asyncio.sleep(POLL_SECONDS)
            found: dict[str, Any] = {"behind": behind}
        except ShardpostError as error:  # no wait mends it
            found = {"refused": str(error), "exit_code": error.exit_code}
        yield TriggerEvent(found)  # type: ignore[no-untyped-call]

    def _look(self) -> str | None:
        from shardpost.weekly_email.prepared_week import why_behind

        own = self._installation = self._installation or task_installation(of_dag(self.dag))
        request = request_of(EmailRequest, self.request)
        return _or_why_away(lambda: why_behind(own, request))


def _or_why_away(look: Callable[[], str | None]) -> str | None:
    """Return what a look returns, or why tables or Kafka do not answer."""
    from shardpost.delta.query import table_errors
    from shardpost.kafka.kafka import KafkaUnreachableError

    try:
        with table_errors():
            return look()
    except (TablesAwayError, KafkaUnreachableError) as error:
        return str(error)


def _why_skip(installation: Installation, request: EmailRequest) -> str | None:
    from shardpost.weekly_email.email_run import why_skip
    from shardpost.weekly_email.week_state import WeekState

    return why_skip(installation, request, WeekState(installation, request.week))


def _started(context: Context, dag: str, why: str) -> str:
    """Start a run of a DAG unless one is on its way; return a sentence about it."""
    from shardpost.orchestration.own_runs import OwnRuns

    task, now = context["ti"], datetime.now(UTC).isoformat()
    run, note = f"{task.dag_id}__{now}", f"for {task.dag_id} {task.run_id}: {why}"
    try:
        if task.get_dr_count(dag, states=["queued", "running"]):
            return f"A run of {dag} is queued or running"
        rejected = OwnRuns().start(dag, run, {}, note[:MAX_NOTE_CHARACTERS])
    except (AirflowRuntimeError, ShardpostError) as error:
        rejected = str(error)
    return f"No run of {dag} was started: {rejected}" if rejected else f"Started: {dag} {run}"
