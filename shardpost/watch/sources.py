"""What the watch collects from each source; nothing is changed."""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from shardpost import tables
from shardpost.alerts import history
from shardpost.alerts.model.alert import Condition
from shardpost.dead_letters.model.letter_format import OPEN, LetterState
from shardpost.decisions import Kind
from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER
from shardpost.errors import shown
from shardpost.holders import plausibility
from shardpost.holders.following import HANGS_AFTER, following, silent_follower
from shardpost.holders.share_holders_topic import too_large_lists
from shardpost.installation import Installation
from shardpost.kafka.records import TopicPartition
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.lag.measure import measure
from shardpost.lag.model.time_to_loss import LagRow
from shardpost.locks import refused_runs
from shardpost.maintenance.stored_tables import table_sizes
from shardpost.run_requests.model.commands import CommandState
from shardpost.run_requests.request_client import RECENT_DECISIONS, commands_in_force, list_decided
from shardpost.topics.model.finding import Severity
from shardpost.values.schedules import WeeklyTime, longest_wait
from shardpost.watch.audit import audit
from shardpost.watch.model import conditions
from shardpost.watch.model.conditions import Observations
from shardpost.weekly_email.delivery_status import WeekStatus, find_late
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.limits import MailLimits, too_many, totals, why_too_late
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import status_document
from shardpost.weekly_email.week_state import WeekState
from shardpost.wording import counted, duration_text, some_of


def collect_kafka(installation: Installation, now: datetime) -> Observations:
    """Measure the findings of the audit; findings with nothing at stake are only counted."""
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
    """Measure all readers; what the last watch found read counts as read."""
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
        found.report(conditions.NOT_MEASURED, LAG, text, text)
    return found


def _measure_topic(found: Observations, group: str, topic: str, rows: Iterable[LagRow]) -> None:
    for name, of_all, values in (
        ("records_behind", sum, [row.records_behind for row in rows]),
        ("behind_seconds", max, [row.seconds_behind for row in rows]),
        ("least_time_to_loss_seconds", min, [row.seconds_to_loss for row in rows]),
    ):
        if known := [value for value in values if value is not None]:
            found.measure(name, of_all(known), group=group, topic=topic)


def _loss_condition(found: Observations, subject: str, losing: list[LagRow], now: datetime) -> None:
    """Add what the worst partition of a group and topic has, if any loses data before long."""
    if not losing:
        return
    worst = min(losing, key=lambda row: (row.seconds_to_loss, row.partition))
    others = counted(len(losing) - 1, "other partition")
    more = f" (and {others})" if len(losing) > 1 else ""
    place = f"{worst.topic}[{worst.partition}]"
    text = f"{worst.group} in {place}{more}: {worst.reason}"
    if worst.committed is not None:
        text += f"; committed: {place}@{worst.committed}"
    rule = conditions.TIME_TO_LOSS if worst.seconds_to_loss else conditions.DATA_LOST
    at = now + timedelta(seconds=worst.seconds_to_loss or 0)
    found.conditions.append(replace(rule.broken(subject, text), loses_at=at))


def collect_snapshot(installation: Installation, now: datetime) -> Observations:
    """Measure the newest snapshot, if there is one; report refused runs."""
    found = Observations()
    for job, one in refused_runs.refusals(installation.files, now).items():
        found.conditions.append(conditions.refused(job, one.why))
    newest = snapshots.newest(installation.tables)
    if newest is None:
        return found
    if follower := following(installation.files, now):
        found.age("following_seconds", follower.since, now)
        if follower.turn_at is not None and follower.seconds is not None:
            found.age("last_turn_age_seconds", follower.turn_at, now)
            found.measure("last_turn_seconds", follower.seconds)
    counts = newest.counts
    found.measure("snapshot_number", newest.number)
    found.measure("positions", counts.positions)
    found.measure("holders", counts.holders)
    found.measure("rejected_records", counts.rejected)
    for exchange, text in plausibility.unknown_of(installation.tables, newest).items():
        found.report(conditions.UNKNOWN_EXCHANGE, exchange, text)
    known = newest.as_known(now)
    looked_at = newest.committed_at if known.looked_at == NEVER else known.looked_at
    age = found.age("snapshot_age_seconds", looked_at, now)
    most, follows = longest_wait(installation.settings.compact_schedule), ""
    if silent := silent_follower(installation.files, now, since=looked_at):
        most = min(most, HANGS_AFTER)
        follows = (
            f"; the compaction that follows on {silent.holder} has said nothing since"
            f" {silent.noted_at:%H:%M:%S} UTC: it may hang"
        )
    if age > most.total_seconds():
        text = (
            f"snapshot {newest.number} has the inputs as of {looked_at:%Y-%m-%d %H:%M:%S} UTC, "
            f"{age:.0f} s ago:"
            f" expected at most {duration_text(most)}{follows}"
        )
        found.report(conditions.SNAPSHOT_AGE, "", text)
    return found


RUNS_WITHIN = timedelta(days=1)


def collect_runs(installation: Installation, now: datetime) -> Observations:
    """Measure the commands of runs that have not ended."""
    found = Observations()
    every = commands_in_force(installation.kafka)
    entries = [(entry, entry.command) for entry in every if entry.command is not None]
    counts = Counter(command.state for _, command in entries)
    for state in CommandState:
        found.measure("runs", counts[state], state=str(state))
    if entries:
        found.age("run_age_seconds", min(entry.at for entry, _ in entries), now)
    days = installation.settings.request_days
    decided = list_decided(installation.kafka, now, days, most=RECENT_DECISIONS)
    conflicts = [one for one in decided if one.decision.kind is Kind.CONFLICT]
    found.measure("run_conflicts", len(conflicts))
    for entry, command in entries:
        if now - entry.at > RUNS_WITHIN:
            text = (
                f"{command.run_id or 'a run not known yet'}, accepted"
                f" {entry.at:%Y-%m-%d %H:%M:%S} UTC, has not ended: expected within"
                f" {duration_text(RUNS_WITHIN)}; `shardpost runs list` lists all"
            )
            found.report(conditions.RUN_AGE, entry.key, text)
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


MOST_NAMED = 5


def collect_letters(installation: Installation, now: datetime) -> Observations:
    """Measure the letters that are waiting or parked."""
    found = Observations()
    letters = [
        step for step in tables.letters(installation.settings, closed_since=now) if step.is_in_topic
    ]
    for state in OPEN:
        steps = [step for step in letters if step.state is state]
        found.measure("letters", len(steps), state=str(state))
        if steps:
            oldest = min(step.at for step in steps)
            found.age("letter_age_seconds", oldest, now, state=str(state))
    due = [step for step in letters if step.due is not None and step.due <= now]
    times = [step.due for step in due if step.due is not None]
    seconds = found.age("letter_overdue_seconds", min(times, default=now), now)
    most = longest_wait(installation.settings.sweep_schedule)
    if seconds > most.total_seconds():
        which = counted(len(due), "dead letter is", "dead letters are")
        text = (
            f"{which} due, the oldest for {seconds:.0f} s: expected at most {duration_text(most)}"
        )
        found.report(conditions.LETTERS_OVERDUE, "", text)
    parked = [step for step in letters if step.state is LetterState.PARKED]
    for origin, number in sorted(Counter(step.origin_topic or "" for step in parked).items()):
        which = f"{counted(number, 'parked dead letter')} of {origin or 'an unknown topic'}"
        text = f"{which}: they need a person"
        found.report(conditions.LETTERS_PARKED, origin, text)
    return found


def collect_share_holders(installation: Installation, _now: datetime) -> Observations:
    """Look for lists that are too large to be published."""
    found = Observations()
    newest = snapshots.newest(installation.tables)
    lists = [] if newest is None else too_large_lists(installation, newest)
    if lists:
        sizes = [f"{shown(one.client)} ({counted(one.positions, 'position')})" for one in lists]
        named = some_of(sizes, MOST_NAMED)
        which = counted(len(lists), "client has a list", "clients have lists")
        text = f"{which} too large for a record of {lists[0].largest} bytes (max.message.bytes)"
        topic = installation.kafka.topic("share-holders")
        found.report(conditions.LISTS_TOO_LARGE, topic, f"{text}: {named}", text)
    return found


# After the end of a week its audience is frozen, and after that its clients are mailed.
EMAILS_WITHIN = timedelta(days=1)
WEEKS_MEASURED = 2
# A week that was not mailed is told for so many weeks: after that nobody would mail it.
MISSING_FOR = 4


def collect_emails(installation: Installation, now: datetime) -> Observations:
    """Measure the weeks that were frozen last and have their audience.

    And look at older ones that were in need of a person at the last look, and at weeks that ended
    and were not frozen, once any was.
    """
    found = Observations()
    frozen = FrozenWeeks(installation.tables).list_all()
    if not frozen:
        return found
    _missing_weeks(found, installation, frozen, now)
    with_audience = [week for week in frozen if week.audience_erased_at is None]
    topic = installation.kafka.topic("weekly-emails")
    partitions = partition_counts(installation.kafka, [topic])[topic]
    firing = {one.condition.subject for one in history.list_firing(installation.tables)}
    for number, week in enumerate(with_audience):
        if number < WEEKS_MEASURED or week.week in firing:
            state = WeekState(installation, IsoWeek.parse(week.week))
            status = WeekStatus(state, week, partitions)
            of_week = _collect_week(installation, week, status, now)
            if number >= WEEKS_MEASURED:
                of_week.measures = []
            found.add(of_week)
    return found


def _missing_weeks(
    found: Observations, installation: Installation, frozen: list[FrozenWeek], now: datetime
) -> None:
    known = {IsoWeek.parse(one.week): one.recipients for one in frozen}
    first = min((week for week, clients in known.items() if clients), default=None)
    later = WeeklyTime.parse(installation.settings.weekly_send).later(IsoWeek.last_ended(now).end)
    week = IsoWeek.last_ended(now - EMAILS_WITHIN - later)
    and_later = f", and {duration_text(later)} more (SHARDPOST_WEEKLY_SEND)" if later else ""
    for _ in range(MISSING_FOR):
        if first is not None and week > first and week not in known:
            text = (
                f"the week ended {week.end:%Y-%m-%d} 00:00 UTC, and its audience is not frozen:"
                f" expected within {duration_text(EMAILS_WITHIN)}{and_later};"
                f" `shardpost email --week {week}` mails it"
            )
            found.report(conditions.EMAILS_MISSING, str(week), text)
        week = week.previous


def _collect_week(
    installation: Installation, frozen: FrozenWeek, status: WeekStatus, now: datetime
) -> Observations:
    found, week = Observations(), status.week
    # Asked first: who is `sending` then is not unknown.
    is_sent = status.state.is_being_sent()
    document = status_document(week, status.by_shard())
    counts = totals(document["shards"])
    for state, clients in counts.items():
        found.measure("emails", clients, week=str(week), state=state)
    if is_sent:
        found.unmeasured.add("emails")
        return found
    if unknown := document["unknown"]:
        which = counted(len(unknown), "client")
        text = f"it is unknown whether {which} got the e-mail"
        named = f"{text}: {some_of(unknown, MOST_NAMED)}"
        found.report(conditions.EMAILS_UNKNOWN, str(week), named, text)
    limits = installation.values(MailLimits)
    # Whom records concern that came after the freeze, where that is known.
    if (late := find_late(installation, frozen)) is not None:
        found.measure("emails_late", late["missed"] + late["changed"], week=frozen.week)
        if reason := why_too_late(limits, frozen, late):
            text = why_too_late(limits, frozen, late | {"clients": ()}) or ""
            found.report(conditions.EMAILS_LATE, frozen.week, reason, text)
    for texts in too_many(limits, document):
        found.report(conditions.EMAILS_FAILED, str(week), *texts)
    if counts["open"] and now - frozen.frozen_at > EMAILS_WITHIN:
        since = f"{frozen.frozen_at:%Y-%m-%d %H:%M} UTC"
        text = (
            f"{counts['open']} of {sum(counts.values())} clients are not mailed yet since the"
            f" freeze of {since}, and no run is sending: expected all to be mailed within"
            f" {duration_text(EMAILS_WITHIN)}; `shardpost email --week {week}` continues"
        )
        found.report(conditions.EMAILS_OPEN, str(week), text)
    return found
