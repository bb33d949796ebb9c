"""What the watch collects of outcomes: dead letters, published lists, the weekly e-mail."""

from collections import Counter
from datetime import datetime, timedelta

from shardpost import tables
from shardpost.alerts import history
from shardpost.dead_letters.model.letter_format import OPEN, LetterState
from shardpost.delta import snapshots
from shardpost.errors import shown
from shardpost.holders.share_holders_topic import too_large_lists
from shardpost.installation import Installation
from shardpost.kafka.topic_metadata import partition_counts
from shardpost.values.schedules import WeeklyTime
from shardpost.watch.model import conditions
from shardpost.watch.model.conditions import Observations
from shardpost.watch.sources import longest_wait
from shardpost.weekly_email.delivery_status import WeekStatus, find_late
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.limits import MailLimits, too_many, totals, why_too_late
from shardpost.weekly_email.model.week import FrozenWeek, IsoWeek
from shardpost.weekly_email.model.week_report import status_document
from shardpost.weekly_email.week_state import WeekState
from shardpost.wording import counted, duration_text, some_of

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
    flood = installation.settings.retry_flood
    counts = Counter(step.fingerprint or "" for step in due)
    # {fingerprint: due letters} of the errors that more letters have than are retried.
    held = {
        error: number
        for error, number in sorted(counts.items())
        if flood is not None and number > flood
    }
    found.measure("letters_held", sum(held.values()))
    for error, number in held.items():
        which, limit = counted(number, "due dead letter"), "(SHARDPOST_RETRY_FLOOD)"
        texts = (f"{which} with {named} {limit}" for named in (f"the error {error}", "one error"))
        # Whoever wrote the letter has written the class that a fingerprint begins with.
        found.conditions.append(conditions.LETTERS_HELD.broken(error.rpartition("-")[2], *texts))
    due = [step for step in due if step.fingerprint not in held]
    times = [step.due for step in due if step.due is not None]
    seconds = found.age("letter_overdue_seconds", min(times, default=now), now)
    most = longest_wait(installation.settings.sweep_schedule)
    if seconds > most.total_seconds():
        which = counted(len(due), "dead letter is", "dead letters are")
        text = f"{which} due, one for {seconds:.0f} s: expected at most {duration_text(most)}"
        found.conditions.append(conditions.LETTERS_OVERDUE.broken("", text))
    parked = [step for step in letters if step.state is LetterState.PARKED]
    for origin, number in sorted(Counter(step.origin_topic or "" for step in parked).items()):
        which = f"{counted(number, 'parked dead letter')} of {origin or 'an unknown topic'}"
        text = f"{which}: expected none"
        found.conditions.append(conditions.LETTERS_PARKED.broken(origin, text))
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
        found.conditions.append(conditions.LISTS_TOO_LARGE.broken(topic, f"{text}: {named}", text))
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
        text = f"it is not known whether {which} got the e-mail"
        named = f"{text}: {some_of(unknown, MOST_NAMED)}"
        found.conditions.append(conditions.EMAILS_UNKNOWN.broken(str(week), named, text))
    limits = installation.values(MailLimits)
    # Whom records concern that came after the freeze, where that is known.
    if (late := find_late(installation, frozen)) is not None:
        found.measure("emails_late", late.count, week=frozen.week)
        if reason := why_too_late(limits, frozen, late.as_json()):
            text = why_too_late(limits, frozen, late.as_json() | {"clients": ()}) or ""
            found.conditions.append(conditions.EMAILS_LATE.broken(frozen.week, reason, text))
    for texts in too_many(limits, week, [document]):
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
