"""The weekly e-mail: freeze who holds as of the week's end, then mail each client exactly once.

Read: the newest snapshot, or the audience that is frozen already. Transform: who holds what, with
contact and subscription. Write: the audience, once; then, one Spark task per shard, the ledger and
the mail.
"""

import json
import logging
import re
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.errors import COULD_NOT, DONE, NEEDS_ATTENTION, ShardpostError
from shardpost.kafka import offsets
from shardpost.locks import exclusive
from shardpost.settings import Settings
from shardpost.spark import job, session
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.frozen_weeks import FrozenWeek
from shardpost.weekly_email.job import WEEKLY_EMAIL
from shardpost.weekly_email.model import shards as shard_lists
from shardpost.weekly_email.model.iso_week import IsoWeek
from shardpost.weekly_email.model.ledger import Policy
from shardpost.weekly_email.model.message import Letterhead
from shardpost.weekly_email.progress import ShardReport
from shardpost.weekly_email.send_plan import BATCH
from shardpost.weekly_email.send_shard import SendingJob
from shardpost.weekly_email.spark import audience, shard_tasks

log = logging.getLogger(__name__)

WORKER_DAEMON = "shardpost.weekly_email.spark.worker_daemon"
# So many lines of a dry run go to the log as well.
SHOWN = 1000
_CAUSE = re.compile(r"Caused by: |(\w+\.)*\w+(Error|Exception): ")


@dataclass(frozen=True)
class WeekRun:
    """What one run of this job is about; `frozen` is None where the audience is computed afresh."""

    settings: Settings
    week: IsoWeek
    now: datetime
    snapshot: Snapshot
    frozen: FrozenWeek | None
    as_of: datetime
    partitions: int
    shards: list[int]

    @property
    def described(self) -> dict[str, Any]:
        """The start of every result."""
        number = self.frozen.snapshot if self.frozen else self.snapshot.number
        return {"week": str(self.week), "snapshot": number}


def weekly_email(args: Namespace, settings: Settings) -> job.Outcome:
    """Freeze, or show, or send, as the arguments say."""
    week, now = IsoWeek.parse(args.week), args.now or datetime.now(UTC)
    if args.scheduled_at and (why := _why_skip(settings, week, now)):
        log.info("skipped: %s", why)
        return DONE, _skipped(week, why)
    try:
        _letterhead(settings, week, now, settings.country)
        run = _prepared(args, settings, week, now)
        sending = _job(args, run)
        if args.freeze_only:
            return DONE, _freeze_only(run)
        if args.dry_run:
            return DONE, _dry_run(run, sending, args.recipients)
        return _send(run, sending)
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(
            f"weekly_email {week}: Spark gave up: {_cause(error)};"
            " what is not mailed is open: run again"
        ) from None


def _cause(error: Exception) -> str:
    """Return the line of Spark's many that names the innermost cause."""
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line for line in lines if _CAUSE.match(line)]
    return (causes or lines[:1])[-1][:SHOWN]


def _why_skip(settings: Settings, week: IsoWeek, now: datetime) -> str | None:
    first = min((s.committed_at for s in snapshots.list_all(settings)), default=None)
    return week.why_skip(now, first, settings.weekly_lateness_days)


def _skipped(week: IsoWeek, why: str) -> dict[str, Any]:
    nothing = {"shards": 0, "recipients": 0, "groups": []}
    return {"week": str(week), "snapshot": None, **nothing, "skipped": why}


def _prepared(args: Namespace, settings: Settings, week: IsoWeek, now: datetime) -> WeekRun:
    """Check that the week can be mailed; freeze its audience if this is the first real run."""
    as_of = week.as_of(now, early=args.early)
    topic = settings.topic("weekly-emails")
    partitions = offsets.partition_counts(settings, [topic])[topic]
    shards = shard_lists.parse(args.shards, partitions)
    snapshot = snapshots.current(settings)
    frozen = frozen_weeks.find(settings, week)
    if frozen is None and not args.early:
        _require_covered(snapshot, week)
        if not args.dry_run:
            spark = _session(settings, shards)
            frozen = audience.freeze(spark, settings, week, snapshot, now)
    if frozen is not None:
        frozen.require_shards(partitions)
        as_of = frozen.as_of
    return WeekRun(settings, week, now, snapshot, frozen, as_of, partitions, shards)


def _require_covered(snapshot: Snapshot, week: IsoWeek) -> None:
    if snapshot.looked_at < week.end:
        raise ShardpostError(
            f"week {week} ended {week.end:%Y-%m-%d %H:%M} UTC, and snapshot {snapshot.number} is of"
            f" {snapshot.looked_at:%Y-%m-%d %H:%M} UTC: run `shardpost compact` first"
        )


def _job(args: Namespace, run: WeekRun) -> SendingJob:
    settings = run.settings
    on_unknown = args.on_unknown or settings.on_unknown
    country = (run.frozen or run.snapshot).country
    head = _letterhead(settings, run.week, run.as_of, country)
    policy = Policy(on_unknown == "resend", again_failed=args.again == "FAILED")
    rate = settings.mail_rate / args.groups if settings.mail_rate else None
    return SendingJob(settings, head, policy, run.now, time.time(), rate, totals={})


def _letterhead(settings: Settings, week: IsoWeek, as_of: datetime, country: str) -> Letterhead:
    return Letterhead.of(
        week,
        as_of,
        mail_from=settings.mail_from,
        unsubscribe_url=settings.unsubscribe_url,
        country=country,
    )


def _freeze_only(run: WeekRun) -> dict[str, Any]:
    groups = shard_lists.groups(run.shards, run.settings.shards_per_task)
    return {
        **run.described,
        "shards": run.partitions,
        "recipients": run.frozen.recipients if run.frozen else None,
        "groups": [shard_lists.text_of(group) for group in groups],
        "skipped": None,
    }


def _dry_run(run: WeekRun, sending: SendingJob, to: Path | None) -> dict[str, Any]:
    """List who would get what now: into the result, or as lines of JSON into a file."""
    spark = _session(run.settings, run.shards)
    lines = shard_tasks.would_send(spark, _members(spark, run), sending, run.shards)
    if to is None:
        listed = []
        for line in lines:
            listed.append(json.loads(line))
            if len(listed) <= SHOWN:
                log.info("would send %s", line)
        log.info("%s: %d would get an e-mail", run.week, len(listed))
        return {**run.described, "recipients": listed}
    with to.open("w") as file:
        count = sum(bool(file.write(line + "\n")) for line in lines)
    log.info("%s: %d would get an e-mail", run.week, count)
    return run.described


def _send(run: WeekRun, sending: SendingJob) -> job.Outcome:
    with ExitStack() as locks:
        for shard in run.shards:
            name = f"{WEEKLY_EMAIL.name}-{run.week}-{shard}"
            what = f"the weekly e-mail of {run.week}, shard {shard},"
            locks.enter_context(exclusive(run.settings, name, what))
        spark = _session(run.settings, run.shards)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
        members = _members(spark, run).persist(StorageLevel.DISK_ONLY)
        sending = replace(sending, rate=_share(spark, sending, run), totals=_totals(members))
        reports = shard_tasks.send(spark, members, sending, run.shards)
    return _code(reports), _result(run, reports)


def _session(settings: Settings, shards: list[int]) -> SparkSession:
    at_once = min(settings.shards_at_once, len(shards))
    return session.start(WEEKLY_EMAIL.name, at_once=at_once, worker_daemon=WORKER_DAEMON)


def _members(spark: SparkSession, run: WeekRun) -> DataFrame:
    settings, snapshot = run.settings, run.snapshot
    rows = (
        audience.frozen_audience(spark, settings, run.frozen)
        if run.frozen
        else audience.computed(spark, settings, snapshot, run.as_of, run.partitions)
    )
    chosen = rows.where(F.col("shard").isin(run.shards))
    return audience.with_subscription(spark, settings, chosen, snapshot)


def _share(spark: SparkSession, sending: SendingJob, run: WeekRun) -> float | None:
    """Return the mails per second of one shard, however many of them Spark runs at once."""
    if sending.rate is None:
        return None
    is_local = str(spark.sparkContext.master).startswith("local")
    at_once = spark.sparkContext.defaultParallelism if is_local else len(run.shards)
    return sending.rate / min(len(run.shards), at_once)


def _totals(members: DataFrame) -> dict[int, int]:
    return {row["shard"]: row["count"] for row in members.groupBy("shard").count().collect()}


def _code(reports: list[ShardReport]) -> int:
    """Name what failed in one line; return the exit code."""
    failed = [report for report in reports if report.error]
    if failed:
        each = "; ".join(f"shard {report.shard}: {report.error}" for report in failed)
        sys.stderr.write(f"shardpost: {each}\n")
        return COULD_NOT
    return NEEDS_ATTENTION if any(report.unknown for report in reports) else DONE


def _result(run: WeekRun, reports: list[ShardReport]) -> dict[str, Any]:
    counts = ("shard", "sent", "failed", "unknown", "suppressed", "open")
    listed = [{name: asdict(report)[name] for name in counts} for report in reports]
    unknown = sorted(client for report in reports for client in report.unknown_clients)
    return {**run.described, "shards": listed, "unknown": unknown}


def parser() -> ArgumentParser:
    """Return the parser of this job's arguments."""
    parser = job.parser(__doc__)
    parser.add_argument("--week", required=True, help="ISO week such as 2026-W47")
    parser.add_argument("--shards", help="such as 0-3 or 0,2,5-7; all if left out")
    parser.add_argument("--dry-run", action="store_true", help="list who would get what now")
    parser.add_argument("--recipients", type=Path, help="where a dry run writes lines of JSON")
    parser.add_argument("--early", action="store_true", help="a week that has not ended, as of now")
    parser.add_argument("--again", choices=["FAILED"], help="mail those again that had failed")
    parser.add_argument("--on-unknown", choices=["hold", "resend"], help="SHARDPOST_ON_UNKNOWN")
    parser.add_argument("--groups", type=int, default=1, help="jobs that share the rate limit")
    parser.add_argument("--freeze-only", action="store_true", help="freeze, and send nothing")
    parser.add_argument("--scheduled-at", help="a scheduled run: leaves out weeks that are not its")
    parser.add_argument("--now", type=_instant, help="the time, ISO 8601; the clock's if left out")
    return parser


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
