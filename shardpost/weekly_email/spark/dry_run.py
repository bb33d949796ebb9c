"""The dry run on Spark: list by shard what a run would do to each client; change nothing."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from shardpost.delta.table import ddl_of
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.weekly_email import dry_runs
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.ledger_index import LedgerIndex, sending_to_unknown
from shardpost.weekly_email.prepared_week import PreparedWeek
from shardpost.weekly_email.send_plan import MailToSend, NoMail, SendPlan, Step
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.spark.audience_freeze import WeekFrames
from shardpost.weekly_email.spark.send import by_shard, require_shard, shard_of_this_task

log = logging.getLogger(__name__)

MOST_LOGGED = 1000  # clients per list


def dry_run(
    installation: Installation, week: PreparedWeek, options: SendOptions, recipients: Path | None
) -> dict[str, Any]:
    """List what would become of each client.

    The lists go into `recipients`: a folder (as dry_runs.py has them), a file such as the log (as
    text), or, if None, the result; only the last needs memory for all clients.
    """
    about = {"week": str(week.iso_week), "snapshot": week.snapshot_number}
    with TemporaryDirectory() as temporary:
        folder = recipients if recipients and recipients.is_dir() else Path(temporary)
        counts = dry_runs.write(folder, _lines(installation, week, options))
        unknown = week.snapshot.counts.unknown.named
        result = about | {"counts": counts, "unknown_exchanges": unknown}
        log.info("%s: %s", week.iso_week, dry_runs.summary(result))
        if recipients is None:
            return result | {
                str(kind): [*dry_runs.lines(folder, kind)] for kind in dry_runs.DryRunList
            }
        if recipients != folder:
            with recipients.open("w") as file:
                file.writelines(dry_runs.text_lines(result, folder, MOST_LOGGED))
        return result


def _lines(
    installation: Installation, week: PreparedWeek, options: SendOptions
) -> Iterator[dict[str, Any]]:
    """Yield what would become of each client now, by shard and client."""
    audience, shards = WeekFrames(installation.tables, week), week.shards

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shard = shard_of_this_task(shards)
        entries = ShardLedger(installation.kafka, week.iso_week, shard).entries()
        ledger = LedgerIndex.fold(entries)
        sending_to_unknown(ledger)
        plan = options.plan(ledger)
        for batch in require_shard(batches, shard):
            yield pa.RecordBatch.from_pylist([*lines_of(batch, plan)], dry_runs.LINES_SCHEMA)

    rows = by_shard(audience.spark, audience.members(), shards)
    for row in rows.mapInArrow(task, ddl_of(dry_runs.LINES)).toLocalIterator():
        yield row.asDict()


def why_unchanged(state: DeliveryState | None, resends: int) -> str:
    """Return why a run does not mail a client in that state."""
    match state:
        case DeliveryState.SENT:
            return "sent already"
        case DeliveryState.FAILED:
            return "failed in an earlier run; --again FAILED mails it"
        case DeliveryState.SUPPRESSED:
            return "suppressed in an earlier run; --again SUPPRESSED mails it if it is subscribed"
        case _ if resends:
            return "delivery unknown, even after a resend: left to a person"
    return "delivery unknown: held for a person; --on-unknown resend mails it again"


def lines_of(batch: pa.RecordBatch, plan: SendPlan) -> Iterator[dict[str, Any]]:
    """Yield the lines of a batch of a shard as rows of `LINES`, in the order of its rows.

    The batch has the columns of `SendPlan`, and `shard`. Raises ShardpostError for what would stop
    the run.
    """
    states = plan.ledger_index.states(batch.column("client").to_pylist())
    steps = {
        (step.mail if isinstance(step, MailToSend) else step.entry).client: step
        for step in plan.steps([batch])
    }
    if plan.stop_reason:
        raise ShardpostError(plan.stop_reason)
    for row, state in zip(batch.to_pylist(), states, strict=True):
        client = row["client"]
        why = why_unchanged(state, plan.ledger_index.resent(client))
        kind, more = _forecast(steps.get(client), row, state, why)
        yield {"list": kind, "client": client, "shard": row["shard"], **more}


def _forecast(
    step: Step | None, row: dict[str, Any], state: DeliveryState | None, why_unchanged: str
) -> tuple[dry_runs.DryRunList, dict[str, Any]]:
    """Return the list of a member, and the rest of its line."""
    match step:
        case MailToSend():
            email = row["email_now" if state is DeliveryState.FAILED else "email"]
            positions = [held["position"] for held in row["positions"]]
            return dry_runs.DryRunList.RECIPIENTS, {"email": email, "positions": positions}
        case NoMail(entry) if entry.state is None:
            return dry_runs.DryRunList.UNCHANGED, {"reason": f"not mailed yet: {entry.reason}"}
        case NoMail(entry):
            return dry_runs.DryRunList(str(entry.state)), {"reason": entry.reason}
        case None:
            return dry_runs.DryRunList.UNCHANGED, {"reason": why_unchanged}
