"""One shard from end to end: open its ledger, send what is open, report the counts.

A shard of three clients, two of them refused, cannot distinguish bad addresses from a broken
server, and neither can a job with some of the shards. So undecided refusals are settled once, from
all answers of a run.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from shardpost.errors import ShardpostError, said, shown
from shardpost.installation import Installation
from shardpost.kafka.transactions import TransactionError
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.email_context import EmailContext
from shardpost.weekly_email.model.ledger import LedgerEntry
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.model.retry import RateLimit
from shardpost.weekly_email.model.server_health import Refusal, open_clients_error
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import ShardReport, joined, status_document
from shardpost.weekly_email.outcomes import Progress
from shardpost.weekly_email.send_plan import SendPlan
from shardpost.weekly_email.shard_sender import PauseWatch, ShardSender, stop_reason_by_signal
from shardpost.weekly_email.smtp_server import SmtpServer
from shardpost.weekly_email.week_state import WeekState
from shardpost.weekly_email.week_status import find_week


def settle_parts(
    installation: Installation, week: IsoWeek, parts: Iterable[Mapping[str, Any]], now: datetime
) -> tuple[dict[str, Any], list[str]]:
    """Settle the refusals of a run of several jobs, given the result of `email_run.send` of each.

    Return them as one with the new counts, and why refused clients remain open. Raises
    ShardpostError if another run is active or the ledger may lack records: then all remain open.
    """
    documents = list(parts)
    answers = [one for document in documents for one in document.get("answers", ())]
    reports = [ShardReport(**one) for one in answers]
    undecided = [report.shard for report in reports if report.provisional]
    if not undecided:
        return joined(week, documents), []
    state = WeekState(installation, week)
    with state.locked(undecided):
        state.require_ledger()
        settled = settle_refusals(installation, week, reports)
        state.mark_end(now)
    status = find_week(installation, week, now)
    counted = status.by_shard([report.shard for report in reports], wait=True)
    left_open = [one.error for one in settled if one.error and one.shard in undecided]
    return status_document(week, counted), left_open


def settle_refusals(
    installation: Installation, week: IsoWeek, reports: Sequence[ShardReport]
) -> list[ShardReport]:
    """Return the reports with each provisional refusal set to `failed` or left open.

    If any shard was stopped, all are left open.
    """
    refused = sum(report.refused for report in reports)
    accepted = sum(report.accepted for report in reports)
    limits = installation.values(SmtpServer).health_limits
    is_proven = not any(report.error for report in reports)
    is_final = is_proven and limits.proves_server(refused, accepted)
    settled = []
    for report in reports:
        refusals, error = [Refusal.from_json(text) for text in report.provisional], report.error
        if refusals and is_final:
            error = _fail(installation, week, report.shard, refusals)
        elif refusals:
            error = open_clients_error(refusals, refused, accepted)
        settled.append(replace(report, error=error, provisional=()))
    return settled


def _fail(
    installation: Installation, week: IsoWeek, shard: int, refusals: Sequence[Refusal]
) -> str | None:
    """Write `failed` for the clients whose state has not changed since; return why it failed."""
    try:
        with closing(Ledger(installation, week, shard)) as ledger:
            states = ledger.open().states([refusal.entry.client for refusal in refusals])
            pairs = zip(refusals, states, strict=True)
            failed = [refusal for refusal, state in pairs if state is refusal.before]
            ledger.write([refusal.entry for refusal in failed])
    except ShardpostError as error:
        return str(error)
    return None


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SendOptions:
    """What the shards of one run share.

    `now` is the run's time when the machine's clock showed `started`, in seconds since 1970.
    """

    context: EmailContext
    resend: ResendPolicy
    now: datetime
    started: float
    has_unsubscribed: Callable[[str], bool] = lambda _: False  # until a send can ask

    def plan(self, ledger_index: LedgerIndex) -> SendPlan:
        """Return the plan of a shard with that ledger."""
        return SendPlan(ledger_index, self.resend, self.context, self.clock, self.has_unsubscribed)

    def clock(self) -> datetime:
        """Return the time."""
        return self.now + timedelta(seconds=time.time() - self.started)


@dataclass(frozen=True)
class Shard:
    """One shard: the size of its audience, and its limit of mails per second, if any."""

    number: int
    audience_size: int
    rate: float | None = None


def send_shard(
    installation: Installation,
    options: SendOptions,
    shard: Shard,
    batches: Iterable[pa.RecordBatch],
) -> ShardReport:
    """Send a shard's e-mails; never raises: the report has what stopped it."""
    batches = iter(batches)
    try:
        with closing(Ledger(installation, options.context.week, shard.number)) as ledger:
            return _send(installation, options, shard, ledger, batches)
    except Exception as error:
        if not isinstance(error, ShardpostError):
            log.exception("shard %d: internal error", shard.number)
        return ShardReport(shard.number, said(error))


def _send(
    installation: Installation,
    options: SendOptions,
    shard: Shard,
    ledger: Ledger,
    batches: Iterator[pa.RecordBatch],
) -> ShardReport:
    ledger_index = ledger.open()
    # The ledger was complete before Spark started, so this was read from it, not from a new topic.
    WeekState(installation, options.context.week).require_ledger()
    unknown = sending_to_unknown(ledger_index)
    plan = options.plan(ledger_index)
    week, size = options.context.week, shard.audience_size
    progress = Progress(week, shard.number, size, ledger_index.counts())
    rate_limit = RateLimit(shard.rate, time.monotonic())
    server = installation.values(SmtpServer)
    paused = PauseWatch(installation, week, time.monotonic)
    with stop_reason_by_signal() as signalled:
        sender = ShardSender(server, ledger, progress, rate_limit, lambda: signalled() or paused())
        error = _run(sender, plan, unknown, batches)
    for _ in batches:  # of a stopped shard: Spark ends a worker that has not read its whole input
        pass
    progress.log_last()
    health = sender.outcomes.health
    # The refusals of a stopped shard are not decided by the run's other shards.
    undecided = () if error else tuple(refusal.to_json() for refusal in health.provisional)
    return ShardReport(shard.number, error, health.accepted, health.refused, undecided)


def _run(
    sender: ShardSender,
    plan: SendPlan,
    unknown: list[LedgerEntry],
    batches: Iterator[pa.RecordBatch],
) -> str | None:
    try:
        for entry in unknown:
            log.warning("%s: delivery unknown: %s", shown(entry.client), entry.reason)
            sender.records.write(entry)
        sender.records.flush()
        sender.run(plan.steps(batches))
    except ShardpostError as error:
        return str(error)
    except Exception as error:
        log.exception("internal error: the shard stops")
        try:
            sender.records.flush()
        except TransactionError as worse:
            return f"{said(error)}; and {worse}"
        return said(error)
    finally:
        sender.close()
    return plan.stop_reason
