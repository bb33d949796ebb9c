"""What the watch looks at, and what it finds there; nothing is changed.

Kafka as the audit finds it; how far readers are behind; the newest snapshot, and lists too large to
be published; dead letters; the weekly e-mail; run commands; tables and their disk.
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from shardpost import refused_runs, tables
from shardpost.alerts import history
from shardpost.alerts.model.alert import Condition
from shardpost.dead_letters.model.letter_format import OPEN, LetterState
from shardpost.dead_letters.model.letter_history import Step
from shardpost.decisions import Kind
from shardpost.delta import snapshots
from shardpost.delta.snapshot import NEVER
from shardpost.errors import shown
from shardpost.holders import countries
from shardpost.holders.following import FollowerHeartbeat, following
from shardpost.holders.share_holders_topic import too_large_lists
from shardpost.installation import Installation
from shardpost.kafka.coordinates import TopicPartition
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.lag.measure import measure
from shardpost.lag.model.report import LagRow
from shardpost.maintenance.table_sizes import table_sizes
from shardpost.run_requests.model.commands import CommandEntry, CommandState
from shardpost.run_requests.request_client import RECENT_DECISIONS, commands_in_force, list_decided
from shardpost.schedules import WeeklyTime, longest_pause
from shardpost.topics.model.finding import Finding, Severity
from shardpost.watch.audit import audit
from shardpost.watch.model import conditions
from shardpost.watch.model.conditions import Found
from shardpost.weekly_email.delivery_status import WeekStatus
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.late_records import find_late
from shardpost.weekly_email.limits import MailLimits, too_many, totals, why_too_late
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import status_document
from shardpost.weekly_email.week_state import WeekState
from shardpost.wording import counted, duration_text


def look_at_kafka(installation: Installation, now: datetime) -> Found:
    """Measure the findings of the audit; those with nothing at stake are counted alone."""
    found = Found()
    findings = audit(installation, now)
    counts = Counter(one.severity for one in findings)
    for severity in Severity:
        found.measure("audit_findings", counts[severity], severity=severity)
    if any(one.rule == "unknown" for one in findings):
        found.unmeasured.add("kafka")
    found.conditions += [_condition_of_finding(one) for one in findings if one.needs_attention]
    return found


def _condition_of_finding(finding: Finding) -> Condition:
    subject = f"{finding.topic} {finding.setting}" if finding.topic else finding.setting
    text = (
        f"{finding.setting} is {finding.found} ({finding.source}), expected {finding.expected};"
        f" {finding.fix}"
    )
    return Condition(finding.rule, subject, finding.severity, text, finding.why, public=text)


LAG = "lag"
READ_UNTIL = "read_until_offset"


def look_at_lag(installation: Installation, now: datetime) -> Found:
    """Measure all readers; what the last look found to be read counts as read."""
    last = history.last_looks(installation.tables, now).get(LAG)
    clear = {
        (labels["group"], TopicPartition(labels["topic"], int(labels["partition"]))): int(value)
        for labels, value in (last.of(READ_UNTIL) if last else ())
    }
    lag = measure(installation, now, clear=clear)
    found = Found()
    for row in lag.rows:
        _measure_partition(found, row)
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


def _measure_partition(found: Found, row: LagRow) -> None:
    place = {"group": row.group, "topic": row.topic, "partition": str(row.partition)}
    if row.seconds_to_loss is not None:
        found.measure("time_to_loss_seconds", row.seconds_to_loss, **place)
    if row.records_behind == 0 and row.end is not None and row.committed != row.end:
        found.measure(READ_UNTIL, row.end, **place)


def _measure_topic(found: Found, group: str, topic: str, rows: Iterable[LagRow]) -> None:
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


def _loss_condition(found: Found, subject: str, losing: list[LagRow], now: datetime) -> None:
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


def look_at_snapshot(installation: Installation, now: datetime) -> Found:
    """Measure the newest snapshot, nothing before the first; say which runs were refused."""
    found = Found()
    for job, one in refused_runs.refusals(installation.files, now).items():
        found.conditions.append(conditions.refused(job, one.why))
    newest = snapshots.newest(installation.tables)
    if newest is None:
        return found
    if follower := following(installation.files, now):
        _measure_following(found, follower, now)
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


def _measure_following(found: Found, one: FollowerHeartbeat, now: datetime) -> None:
    found.age("following_seconds", one.since, now)
    found.measure("following_turns", one.turns)
    if one.turn_at is not None and one.seconds is not None:
        found.age("last_turn_age_seconds", one.turn_at, now)
        found.measure("last_turn_seconds", one.seconds)


def look_at_letters(installation: Installation, now: datetime) -> Found:
    """Measure the letters that are waiting or parked."""
    found = Found()
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
    held = _held_errors(due, installation.settings.retry_flood)
    found.measure("letters_held", sum(held.values()))
    for error, number in held.items():
        which, limit = counted(number, "due dead letter"), "(SHARDPOST_RETRY_FLOOD)"
        texts = (f"{which} with {named} {limit}" for named in (f"the error {error}", "one error"))
        # Whoever wrote the letter has written the class that a fingerprint begins with.
        found.conditions.append(conditions.LETTERS_HELD.broken(error.rpartition("-")[2], *texts))
    _overdue_letters(
        found, installation, [step for step in due if step.fingerprint not in held], now
    )
    _parked_letters(found, [step for step in letters if step.state is LetterState.PARKED])
    return found


def _held_errors(due: list[Step], flood: int | None) -> dict[str, int]:
    """Return {fingerprint: due letters} of the errors that more letters have than are retried."""
    if flood is None:
        return {}
    counts = Counter(step.fingerprint or "" for step in due)
    return {error: number for error, number in sorted(counts.items()) if number > flood}


def _overdue_letters(
    found: Found, installation: Installation, due: list[Step], now: datetime
) -> None:
    times = [step.due for step in due if step.due is not None]
    seconds = found.age("letter_overdue_seconds", min(times, default=now), now)
    most = longest_wait(installation.settings.sweep_schedule)
    if seconds > most.total_seconds():
        which = counted(len(due), "dead letter is", "dead letters are")
        text = f"{which} due, one for {seconds:.0f} s: expected at most {duration_text(most)}"
        found.conditions.append(conditions.LETTERS_OVERDUE.broken("", text))


def _parked_letters(found: Found, parked: list[Step]) -> None:
    for origin, number in sorted(Counter(step.origin_topic or "" for step in parked).items()):
        which = f"{counted(number, 'parked dead letter')} of {origin or 'an unknown topic'}"
        text = f"{which}: expected none"
        found.conditions.append(conditions.LETTERS_PARKED.broken(origin, text))


MOST_NAMED = 5


def look_at_share_holders(installation: Installation, _now: datetime) -> Found:
    """Look for lists that are too large to be published."""
    found = Found()
    newest = snapshots.newest(installation.tables)
    lists = [] if newest is None else too_large_lists(installation, newest)
    if lists:
        sizes = [f"{shown(one.client)} ({counted(one.positions, 'position')})" for one in lists]
        named = _named(sizes)
        which = counted(len(lists), "client has a list", "clients have lists")
        text = f"{which} too large for a record of {lists[0].largest} bytes (max.message.bytes)"
        topic = installation.kafka.topic("share-holders")
        found.conditions.append(conditions.LISTS_TOO_LARGE.broken(topic, f"{text}: {named}", text))
    return found


def _named(names: list[str]) -> str:
    return ", ".join([*names[:MOST_NAMED], *(["…"] if len(names) > MOST_NAMED else [])])


# After the end of a week its audience is frozen, and after that its clients are mailed.
EMAILS_WITHIN = timedelta(days=1)
WEEKS_LOOKED_AT = 2
# A week that was not mailed is told for so many weeks: after that nobody would mail it.
MISSING_FOR = 4


def look_at_emails(installation: Installation, now: datetime) -> Found:
    """Measure the weeks that were frozen last and have their audience.

    And look at older ones that were in need of a person at the last look, and at weeks that ended
    and were not frozen, once any was.
    """
    found = Found()
    frozen = FrozenWeeks(installation.tables).list_all()
    if not frozen:
        return found
    _missing_weeks(found, installation, frozen, now)
    with_audience = [week for week in frozen if week.audience_erased_at is None]
    topic = installation.kafka.topic("weekly-emails")
    partitions = partition_counts(installation.kafka, [topic])[topic]
    firing = {one.condition.subject for one in history.list_firing(installation.tables)}
    for number, week in enumerate(with_audience):
        if number < WEEKS_LOOKED_AT or week.week in firing:
            status = WeekStatus(installation, IsoWeek.parse(week.week), week, partitions)
            of_week = _look_at_week(installation, week, status, now)
            if number >= WEEKS_LOOKED_AT:
                of_week.measures = []
            found.add(of_week)
    return found


def _missing_weeks(
    found: Found, installation: Installation, frozen: list[FrozenWeek], now: datetime
) -> None:
    known = {IsoWeek.parse(one.week) for one in frozen}
    later = WeeklyTime.parse(installation.settings.weekly_send).later(IsoWeek.last_ended(now).end)
    week = IsoWeek.last_ended(now - EMAILS_WITHIN - later)
    and_later = f", and {duration_text(later)} more (SHARDPOST_WEEKLY_SEND)" if later else ""
    for _ in range(MISSING_FOR):
        if week > min(known) and week not in known:
            text = (
                f"the week ended {week.end:%Y-%m-%d} 00:00 UTC, and its audience is not frozen:"
                f" expected within {duration_text(EMAILS_WITHIN)}{and_later};"
                f" `shardpost email --week {week}` mails it"
            )
            found.conditions.append(conditions.EMAILS_MISSING.broken(str(week), text))
        week = week.previous


def _look_at_week(
    installation: Installation, frozen: FrozenWeek, status: WeekStatus, now: datetime
) -> Found:
    found, week = Found(), status.week
    # Asked first: who is `sending` then is not unknown.
    is_sent = WeekState(installation, week).is_being_sent()
    document = status_document(week, status.by_shard())
    counts = totals(document["shards"])
    for state, clients in counts.items():
        found.measure("emails", clients, week=str(week), state=state)
    if is_sent:
        found.unmeasured.add("emails")
        return found
    if unknown := document["unknown"]:
        which = counted(len(unknown), "client")
        text = f"it is not known whether {which} got the e-mail"
        named = f"{text}: {_named(unknown)}"
        found.conditions.append(conditions.EMAILS_UNKNOWN.broken(str(week), named, text))
    _look_at_late(found, installation, frozen)
    for texts in too_many(installation.values(MailLimits), week, [document]):
        found.conditions.append(conditions.EMAILS_FAILED.broken(str(week), *texts))
    if counts["open"] and now - frozen.frozen_at > EMAILS_WITHIN:
        since = f"{frozen.frozen_at:%Y-%m-%d %H:%M} UTC"
        text = (
            f"{counts['open']} of {sum(counts.values())} clients are not mailed yet since the"
            f" freeze of {since}, and no run is sending: expected none after"
            f" {duration_text(EMAILS_WITHIN)}; `shardpost email --week {week}` goes on"
        )
        found.conditions.append(conditions.EMAILS_OPEN.broken(str(week), text))
    return found


def _look_at_late(found: Found, installation: Installation, frozen: FrozenWeek) -> None:
    """Measure whom records concern that came after the freeze, where that is known."""
    late = find_late(installation, frozen)
    if late is None:
        return
    found.measure("emails_late", late.count, week=frozen.week)
    limits = installation.values(MailLimits)
    if reason := why_too_late(limits, frozen, late.as_json()):
        text = why_too_late(limits, frozen, late.as_json() | {"clients": ()}) or ""
        found.conditions.append(conditions.EMAILS_LATE.broken(frozen.week, reason, text))


RUNS_WITHIN = timedelta(days=1)


def look_at_runs(installation: Installation, now: datetime) -> Found:
    """Measure the commands that are in force."""
    found = Found()
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
            found.conditions.append(conditions.RUN_AGE.broken(entry.key, _run_text(entry)))
    return found


def _run_text(entry: CommandEntry) -> str:
    command = entry.command
    run = command.run_id or "a run that is not known yet" if command else ""
    return (
        f"{run}, accepted {entry.at:%Y-%m-%d %H:%M:%S} UTC, has not ended: expected"
        f" within {duration_text(RUNS_WITHIN)}; `shardpost runs list` has all"
    )


def look_at_sizes(installation: Installation, _now: datetime) -> Found:
    """Measure the tables, and their disk where they are on one."""
    found = Found()
    for size in table_sizes(installation):
        found.measure("table_rows", size.rows, table=size.table)
        found.measure("table_files", size.files, table=size.table)
        found.measure("table_bytes", size.bytes + size.log_bytes, table=size.table)
    if not installation.tables.is_on_store and Path(installation.tables.root).exists():
        found.measure("disk_free_bytes", shutil.disk_usage(installation.tables.root).free)
    return found
