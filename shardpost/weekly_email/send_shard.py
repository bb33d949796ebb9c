"""One shard from end to end: open its ledger, send what is open, report the counts."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa

from shardpost.errors import ShardpostError
from shardpost.kafka.transactions import TransactionError
from shardpost.printable import one_line
from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.email_context import EmailContext
from shardpost.weekly_email.model.ledger import LedgerEntry, ResendPolicy
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.rate_limit import RateLimit
from shardpost.weekly_email.model.refusals import Refusals
from shardpost.weekly_email.model.shard_counts import ShardReport
from shardpost.weekly_email.model.unknown_deliveries import sending_to_unknown
from shardpost.weekly_email.progress import Progress
from shardpost.weekly_email.send_plan import SendPlan
from shardpost.weekly_email.shard_sender import ShardSender
from shardpost.weekly_email.stop_signals import stop_reason_by_signal
from shardpost.weekly_email.unsubscribed import stays_subscribed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SendOptions:
    """What the shards of one run have in common.

    `now` is the run's time when the machine's clock showed `started`, seconds since 1970.
    """

    context: EmailContext
    resend: ResendPolicy
    now: datetime
    started: float
    has_unsubscribed: Callable[[str], bool] = stays_subscribed
    is_early: bool = False

    def plan(self, ledger_index: LedgerIndex) -> SendPlan:
        """Return the plan of a shard whose ledger says that."""
        return SendPlan(
            ledger_index,
            self.resend,
            self.context,
            self.clock,
            self.has_unsubscribed,
            self.is_early,
        )

    def clock(self) -> datetime:
        """Return the time."""
        return self.now + timedelta(seconds=time.time() - self.started)


@dataclass(frozen=True)
class Shard:
    """One shard: how many clients its audience has, and the mails per second that it may send.

    `rate` is None for no limit.
    """

    number: int
    audience_size: int
    rate: float | None = None


def send_shard(
    settings: Settings, options: SendOptions, shard: Shard, batches: Iterable[pa.RecordBatch]
) -> ShardReport:
    """Send a shard's e-mails; never raises: what stopped it is in the report."""
    batches = iter(batches)
    try:
        with closing(Ledger(settings, options.context.week, shard.number)) as ledger:
            return _send(settings, options, shard, ledger, batches)
    except ShardpostError as error:
        return ShardReport(shard.number, open=shard.audience_size, error=str(error))
    except Exception as error:
        log.exception("shard %d: internal error", shard.number)
        return ShardReport(shard.number, open=shard.audience_size, error=_internal(error))


def _send(
    settings: Settings,
    options: SendOptions,
    shard: Shard,
    ledger: Ledger,
    batches: Iterator[pa.RecordBatch],
) -> ShardReport:
    ledger_index = ledger.open()
    unknown = sending_to_unknown(ledger_index)
    plan = options.plan(ledger_index)
    week = options.context.week
    progress = Progress.of(week, shard.number, shard.audience_size, ledger_index)
    rate_limit = RateLimit(shard.rate, time.monotonic())
    with stop_reason_by_signal() as stop_reason:
        sender = ShardSender(settings, ledger, progress, rate_limit, stop_reason)
        error = _run(sender, plan, unknown, batches)
    plan.count_rest(batches)
    progress.log_last()
    return _with_refusals(progress.report(plan.open_clients, error), sender.refusals)


def _with_refusals(report: ShardReport, refusals: Refusals) -> ShardReport:
    """Add what the run's other shards need to know; a shard that stopped has none to be decided."""
    undecided = () if report.error else tuple(one.to_json() for one in refusals.provisional)
    return replace(
        report,
        accepted=refusals.accepted,
        refused=refusals.refused,
        provisional=undecided,
    )


def _run(
    sender: ShardSender,
    plan: SendPlan,
    unknown: list[LedgerEntry],
    batches: Iterator[pa.RecordBatch],
) -> str | None:
    """Send; return what stopped the shard, or None."""
    try:
        for entry in unknown:
            log.warning("%s: delivery unknown: %s", one_line(entry.client), entry.reason)
            sender.write(entry)
        sender.flush()
        sender.run(plan.steps(batches))
    except ShardpostError as error:
        return str(error)
    except Exception as error:
        log.exception("internal error: the shard stops")
        try:
            sender.flush()
        except TransactionError as worse:
            return f"{_internal(error)}; and {worse}"
        return _internal(error)
    finally:
        sender.close()
    return plan.stop_reason


def _internal(error: Exception) -> str:
    return f"internal error {type(error).__name__}: {error}"
