"""Waiting for a compaction: a run of the weekly e-mail for which the newest snapshot is too old.

It waits without a slot, in Airflow's triggerer, and starts a compaction unless one is on its way.
The checks of a run are not made less by it: the tasks after it check all of them again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError
from airflow.triggers.base import BaseTrigger, TriggerEvent

from shardpost.errors import NoSnapshotError, ShardpostError
from shardpost.installation import Installation
from shardpost.orchestration.connections import of_dag, task_installation
from shardpost.orchestration.tasks import alert_of_attention, task_errors
from shardpost.run_requests.airflow_api import MAX_NOTE_CHARACTERS
from shardpost.spark.job import document_of, request_of
from shardpost.weekly_email.email_job import EmailRequest
from shardpost.wording import duration_text

log = logging.getLogger(__name__)

POLL_SECONDS = 15.0
# After so long people are alerted, once; a compaction that failed is started again each time.
PATIENCE = timedelta(hours=1)
# Beyond it no event of the triggerer is to be expected: then the task fails, and tries again.
GRACE = timedelta(minutes=15)


class SnapshotWait(BaseOperator):
    """Waits until the newest snapshot has what a run needs; at most for `most`, then it fails.

    `request` makes the request of the run, `compaction` is the DAG that compacts. A dry run, and
    one that skips its week, do not wait: the task after it says what is wrong.
    """

    # Shown by the UI under "Rendered Templates", from the moment at which the task waits.
    template_fields = ("waits_for",)
    overwrite_rtif_after_execution = True

    def __init__(
        self,
        *,
        request: Callable[[Context], EmailRequest],
        compaction: str,
        most: timedelta,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        self.request_of, self.compaction, self.most = request, compaction, most
        self.waits_for = ""

    @task_errors()
    def execute(self, context: Context) -> None:
        """Return at once if there is nothing to wait for; fail for what no compaction mends."""
        from shardpost.weekly_email.prepared_week import SnapshotBehindError, preview_week
        from shardpost.weekly_email.week_state import WeekState

        request, installation = self.request_of(context), task_installation()
        if not request.is_real or _why_skip(installation, request):
            return
        try:
            preview_week(installation, request, WeekState(installation, request.week))
        except (NoSnapshotError, SnapshotBehindError) as error:
            self._wait(context, str(error), datetime.now(UTC))

    @task_errors()
    def on_event(self, context: Context, event: dict[str, Any], since: str, alerts: int) -> None:
        """Succeed if the snapshot has all; else alert, and wait on or fail."""
        began, behind = datetime.fromisoformat(since), event["behind"]
        waited = duration_text(datetime.now(UTC) - began)
        if behind is None:
            if why := _why_skip(task_installation(), self.request_of(context)):
                raise AirflowFailException(f"a compaction came after {waited}, too late: {why}")
            log.info("a compaction came after %s", waited)
            return
        if datetime.now(UTC) >= began + self.most:
            raise AirflowFailException(f"no compaction for {waited}: {behind}")
        if not alerts:
            alert_of_attention(context, [f"waiting for a compaction for {waited}: {behind}"])
        self._wait(context, behind, began, alerts + 1)

    def _wait(self, context: Context, behind: str, since: datetime, alerts: int = 0) -> None:
        self.waits_for = f"{behind}. {_started(context, self.compaction, behind)}"
        log.info("waiting for a compaction: %s", self.waits_for)
        now = datetime.now(UTC)
        until = min(now + PATIENCE, since + self.most)
        document = document_of(self.request_of(context), with_now=False)
        self.defer(
            trigger=SnapshotTrigger(context["ti"].dag_id, document, until.isoformat()),
            method_name=self.on_event.__name__,
            kwargs={"since": since.isoformat(), "alerts": alerts},
            timeout=until - now + GRACE,
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
        """Yield {"behind": what the snapshot lacks, or None} once."""
        until, said = datetime.fromisoformat(self.until), None
        while True:
            try:
                behind = await asyncio.to_thread(self._look)
            except ShardpostError as error:  # such as tables that are away for a while
                behind = str(error)
            if behind is None or datetime.now(UTC) >= until:
                break
            if behind != said:
                log.info("waiting: %s", said := behind)
            await asyncio.sleep(POLL_SECONDS)
        yield TriggerEvent({"behind": behind})  # type: ignore[no-untyped-call]

    def _look(self) -> str | None:
        from shardpost.weekly_email.prepared_week import why_behind

        self._installation = self._installation or task_installation(of_dag(self.dag))
        return why_behind(self._installation, request_of(EmailRequest, self.request))


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
