"""One shard from end to end: open its ledger, send what is open, say how it stands."""

import logging
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FrameType

import pyarrow as pa

from shardpost.errors import ShardpostError
from shardpost.kafka.transactions import TransactionError
from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, Policy
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.message import Letterhead
from shardpost.weekly_email.model.rate_limit import RateLimit
from shardpost.weekly_email.progress import Progress, ShardReport
from shardpost.weekly_email.send_plan import SendPlan
from shardpost.weekly_email.shard_sender import ShardSender

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SendingJob:
    """What the shards of one run share.

    `now` is the run's time when the machine's clock said `started` (seconds since 1970); `rate` is
    the mails per second that each shard may send; `totals` the size of each shard's audience.
    """

    settings: Settings
    head: Letterhead
    policy: Policy
    now: datetime
    started: float
    rate: float | None
    totals: dict[int, int]

    def clock(self) -> datetime:
        """Return the time."""
        return self.now + timedelta(seconds=time.time() - self.started)


def send_shard(job: SendingJob, shard: int, batches: Iterable[pa.RecordBatch]) -> ShardReport:
    """Send a shard's e-mails; never raises: what stopped it is in the report."""
    batches = iter(batches)
    try:
        with closing(Ledger(job.settings, job.head.week, shard)) as ledger:
            return _send(job, shard, ledger, batches)
    except ShardpostError as error:
        return ShardReport(shard, open=job.totals.get(shard, 0), error=str(error))
    except Exception as error:
        log.exception("shard %d", shard)
        return ShardReport(shard, open=job.totals.get(shard, 0), error=_unexpected(error))


def _send(
    job: SendingJob, shard: int, ledger: Ledger, batches: Iterator[pa.RecordBatch]
) -> ShardReport:
    book = ledger.open()
    in_doubt = book.give_up_sending()
    plan = SendPlan(book, job.policy, job.head, job.clock)
    tally = Progress(
        job.head.week, shard, job.totals.get(shard, 0), book.counts(), dict.fromkeys(book.doubtful)
    )
    with _told_to_stop() as stop:
        pace = RateLimit(job.rate, time.monotonic())
        sender = ShardSender(job.settings, ledger, tally, pace, lambda: stop[0] if stop else None)
        error = _attempt(sender, plan, _unknown(book, in_doubt), batches)
    plan.count_rest(batches)
    tally.say(0, time.monotonic(), at_once=True)
    return tally.report(plan.open, error)


def _attempt(
    sender: ShardSender,
    plan: SendPlan,
    in_doubt: list[LedgerEntry],
    batches: Iterator[pa.RecordBatch],
) -> str | None:
    """Send; return what stopped the shard, or None."""
    try:
        for entry in in_doubt:
            log.warning("%s: unknown, %s", entry.client, entry.reason)
            sender.write(entry)
        sender.flush()
        sender.run(plan.steps(batches))
    except ShardpostError as error:
        return str(error)
    except Exception as error:
        log.exception("the shard stopped in a way that is not foreseen")
        try:
            sender.flush()
        except TransactionError as worse:
            return f"{_unexpected(error)}; and {worse}"
        return _unexpected(error)
    finally:
        sender.close()
    return None


def _unknown(book: LedgerIndex, clients: list[str]) -> list[LedgerEntry]:
    reason = "the run that was sending it ended without writing what came of it"
    return [
        LedgerEntry(client, DeliveryState.UNKNOWN, book.doubtful[client].message_id, reason)
        for client in clients
    ]


def _unexpected(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error}"


@contextmanager
def _told_to_stop() -> Iterator[list[str]]:
    """Heed SIGTERM and SIGHUP, as Spark ends its workers.

    The group that is out is brought to its end.
    """
    told: list[str] = []

    def heed(number: int, frame: FrameType | None) -> None:
        told.append(f"stopped by {signal.Signals(number).name}: what is not mailed is left open")

    before = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
