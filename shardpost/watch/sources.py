"""What the watch collects from each source; nothing is changed.

Kafka as the audit finds it; how far readers are behind; the newest snapshot; run commands; tables
and their disk. What comes out for consumers and clients is in outcomes.py.
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from shardpost.alerts import history
from shardpost.alerts.model.alert import Condition
from shardpost.decisions import Kind
from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER
from shardpost.holders import countries
from shardpost.holders.following import following
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.lag.measure import measure
from shardpost.lag.model.time_to_loss import LagRow
from shardpost.locks import refused_runs
from shardpost.maintenance.stored_tables import table_sizes
from shardpost.run_requests.model.commands import CommandState
from shardpost.run_requests.request_client import RECENT_DECISIONS, commands_in_force, list_decided
from shardpost.topics.model.finding import Severity
from shardpost.values.schedules import longest_pause
from shardpost.watch.audit import audit
from shardpost.watch.model import conditions
from shardpost.watch.model.conditions import Observations
from shardpost.wording import counted, duration_text


def collect_kafka(installation: Installation, now: datetime) -> Observations:
    """Measure the findings of the audit; those with nothing at stake are counted alone."""
    found = Observations()
    findings = audit(installation, now)
    counts = Counter(one.severity for one in findings)
    for severity in Severity:
        found.measure("audit_findings", counts[severity], severity=severity)
    if any(one.rule == "unknown" for one in findings):
        found.unmeasured.add("kafka")
    for one in findings:
        if one.needs_attention:
            subject = f"{one.topic} {one.setting}" if one.topic else one.setting
            text = (
                f"{one.setting} is {one.found} ({one.source}), expected {one.expected}; {one.fix}"
            )
            found.conditions.append(
                Condition(one.rule, subject, one.severity, text, one.why, public=text)
            )
    return found


LAG = "lag"
READ_UNTIL = "read_until_offset"


def collect_lag(installation: Installation, now: datetime) -> Observations:
    """Measure all readers; what the last look found to be read counts as read."""
    last = history.last_looks(installation.tables, now).get(LAG)
    clear = {
        (labels["group"], TopicPartition(labels["topic"], int(labels["partition"]))): int(value)
        for labels, value in (last.of(READ_UNTIL) if last else ())
    }
    lag = measure(installation, now, clear=clear)
    found = Observations()
    for row in lag.rows:
        place = {"group": row.group, "topic": row.topic, "partition": str(row.partition)}
        if row.seconds_to_loss is not None:
            found.measure("time_to_loss_seconds", row.seconds_to_loss, **place)
        if row.records_behind == 0 and row.end is not None and row.committed != row.end:
            found.measure(READ_UNTIL, row.end, **place)
    by_topic: dict[tuple[str, str], list[LagRow]] = defaultdict(list)
    for row in lag.rows:
        by_topic[row.group, row.topic].append(row)
    for (group, topic), rows in by_topic.items():
        _measure_topic(found, group, topic, rows)
        losing = [row for row in rows if row.loses_within(installation.settings.loss_warning)]
        _loss_condition(found, f"{group} {topic}", losing, now)
    if lag.problems:
        found.unmeasured.add(LAG)
        text = "; ".join(lag.problems)
        found.conditions.append(conditions.NOT_MEASURED.broken(LAG, text, text))
    return found


def _measure_topic(found: Observations, group: str, topic: str, rows: Iterable[LagRow]) -> None:
    of = {"group": group, "topic": topic}
    behind = [row.records_behind for row in rows if row.records_behind is not None]
    late = [row.seconds_behind for row in rows if row.seconds_behind is not None]
    left = [row.seconds_to_loss for row in rows if row.seconds_to_loss is not None]
    if behind:
        found.measure("records_behind", sum(behind), **of)
    if late:
        found.measure("behind_seconds", max(late), **of)
    if left:
        found.measure("least_time_to_loss_seconds", min(left), **of)


def _loss_condition(found: Observations, subject: str, losing: list[LagRow], now: datetime) -> None:
    """Add what the worst partition of a group and topic has, if any loses data before long."""
    if not losing:
        return
    worst = min(losing, key=lambda row: (row.seconds_to_loss, row.partition))
    others = counted(len(losing) - 1, "other partition")
    more = f" (and {others})" if len(losing) > 1 else ""
    text = f"partition {worst.partition}{more}: {worst.reason}"
    rule = conditions.TIME_TO_LOSS if worst.seconds_to_loss else conditions.DATA_LOST
    at = now + timedelta(seconds=worst.seconds_to_loss or 0)
    found.conditions.append(replace(rule.broken(subject, text), loses_at=at))


def collect_snapshot(installation: Installation, now: datetime) -> Observations:
    """Measure the newest snapshot, nothing before the first; say which runs were refused."""
    found = Observations()
    for job, one in refused_runs.refusals(installation.files, now).items():
        found.conditions.append(conditions.refused(job, one.why))
    newest = snapshots.newest(installation.tables)
    if newest is None:
        return found
    if follower := following(installation.files, now):
        found.age("following_seconds", follower.since, now)
        found.measure("following_turns", follower.turns)
        if follower.turn_at is not None and follower.seconds is not None:
            found.age("last_turn_age_seconds", follower.turn_at, now)
            found.measure("last_turn_seconds", follower.seconds)
    counts = newest.counts
    found.measure("snapshot_number", newest.number)
    found.measure("positions", counts.positions)
    found.measure("holders", counts.holders)
    found.measure("rejected_records", counts.rejected)
    for exchange, text in countries.unknown_of(installation.tables, newest).items():
        found.conditions.append(conditions.UNKNOWN_EXCHANGE.broken(exchange, text))
    known = newest.as_known(now)
    looked_at = newest.committed_at if known.looked_at == NEVER else known.looked_at
    age = found.age("snapshot_age_seconds", looked_at, now)
    most = longest_wait(installation.settings.compact_schedule)
    if age > most.total_seconds():
        text = (
            f"snapshot {newest.number} is of {looked_at:%Y-%m-%d %H:%M:%S} UTC, {age:.0f} s ago:"
            f" expected at most {duration_text(most)}"
        )
        found.conditions.append(conditions.SNAPSHOT_AGE.broken("", text))
    return found


def longest_wait(schedule: str) -> timedelta:
    """Return how long what a DAG does may wait for it: its schedule may be another one."""
    return max(timedelta(hours=1), longest_pause(schedule) + timedelta(minutes=30))


RUNS_WITHIN = timedelta(days=1)


def collect_runs(installation: Installation, now: datetime) -> Observations:
    """Measure the commands that are in force."""
    found = Observations()
    entries = [
        entry for entry in commands_in_force(installation.kafka) if entry.command is not None
    ]
    counts = Counter(entry.command.state for entry in entries if entry.command)
    for state in CommandState:
        found.measure("runs", counts[state], state=str(state))
    if entries:
        found.age("run_age_seconds", min(entry.at for entry in entries), now)
    days = installation.settings.request_days
    decided = list_decided(installation.kafka, now, days, most=RECENT_DECISIONS)
    conflicts = [one for one in decided if one.decision.kind is Kind.CONFLICT]
    found.measure("run_conflicts", len(conflicts))
    for entry in entries:
        if now - entry.at > RUNS_WITHIN:
            command = entry.command
            run = command.run_id or "a run that is not known yet" if command else ""
            text = (
                f"{run}, accepted {entry.at:%Y-%m-%d %H:%M:%S} UTC, has not ended: expected"
                f" within {duration_text(RUNS_WITHIN)}; `shardpost runs list` has all"
            )
            found.conditions.append(conditions.RUN_AGE.broken(entry.key, text))
    return found


def collect_sizes(installation: Installation, _now: datetime) -> Observations:
    """Measure the tables, and their disk where they are on one."""
    found = Observations()
    for size in table_sizes(installation.tables):
        found.measure("table_rows", size.rows, table=size.table)
        found.measure("table_files", size.files, table=size.table)
        found.measure("table_bytes", size.bytes + size.log_bytes, table=size.table)
    if not installation.tables.is_on_store and Path(installation.tables.root).exists():
        found.measure("disk_free_bytes", shutil.disk_usage(installation.tables.root).free)
    return found
