"""What the watch says of weeks, lists and requests that nobody would miss; Kafka in memory."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from unittest.mock import create_autospec

from shardpost.alerts import history
from shardpost.alerts.model.alert import Condition
from shardpost.delta import snapshots
from shardpost.holders.publishing import publish
from shardpost.kafka.records import TopicPartition
from shardpost.locks.locks import exclusive
from shardpost.run_requests.airflow_api import AirflowRuns
from shardpost.run_requests.dispatch import PartitionDispatch
from shardpost.run_requests.model.requests import RequestRules
from shardpost.settings import Settings
from shardpost.watch.sources import collect_emails, collect_share_holders
from shardpost.watch.watch import watch_once
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from tests.support.committed_snapshot import held, limit
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.run_requests import ask
from tests.support.written_weeks import CLIENTS, begin, freeze, record

W47 = IsoWeek.parse("2026-W47")
HOUR = timedelta(hours=1)
DAY = 24 * HOUR


def frozen_week(settings: Settings, week: IsoWeek, mailed: Iterable[str] = CLIENTS) -> None:
    begin(settings, week, week.end)
    freeze(settings, week, CLIENTS, week.end)
    for client in mailed:
        record(settings, week, client, DeliveryState.SENT)


def emails(settings: Settings, now: datetime) -> list[tuple[str, str]]:
    return [(one.rule, one.subject) for one in collect_emails(installed(settings), now).conditions]


def test_a_frozen_week_whose_clients_nobody_mails_is_found_after_a_day(at: Settings) -> None:
    frozen_week(at, W47, mailed=CLIENTS[:1])
    frozen_at = W47.end
    assert emails(at, frozen_at + DAY) == []
    assert emails(at, frozen_at + DAY + HOUR) == [("emails-open", str(W47))]
    [found] = collect_emails(installed(at), frozen_at + 3 * DAY).conditions
    assert found.text.startswith(
        "3 of 4 clients are not mailed yet since the freeze of 2026-11-23 00:00 UTC, and no run"
    )
    with exclusive(installed(at).files, f"weekly_email-{W47}-1", "a send"):
        busy = collect_emails(installed(at), frozen_at + 2 * DAY)
    assert (busy.conditions, busy.unmeasured) == ([], {"emails"})
    for client in CLIENTS[1:]:
        record(at, W47, client, DeliveryState.SENT)
    assert emails(at, frozen_at + 2 * DAY) == []


def test_a_week_that_ended_and_is_not_frozen_is_found_once_any_was(at: Settings) -> None:
    assert emails(at, W47.end + 30 * DAY) == []
    freeze(at, IsoWeek.parse("2020-W01"), [], W47.end)  # without a client
    frozen_week(at, W47)
    assert emails(at, W47.end + DAY) == []
    skipped, later = W47.next, W47.next.next
    assert emails(at, skipped.end + 23 * HOUR) == []
    assert emails(at, skipped.end + DAY) == [("emails-missing", str(skipped))]
    on_tuesday = at.model_copy(update={"weekly_send": "Tue 08:00 UTC"})  # a day later than usual
    assert emails(on_tuesday, skipped.end + DAY + 23 * HOUR) == []
    [found] = collect_emails(installed(on_tuesday), skipped.end + 2 * DAY).conditions
    assert "within 1 d, and 1 d" in found.text
    frozen_week(at, later)
    assert emails(at, later.end + 2 * DAY) == [("emails-missing", str(skipped))]
    assert emails(at, skipped.end + 22 * DAY)[-1] == ("emails-missing", str(skipped))
    assert ("emails-missing", str(skipped)) not in emails(at, skipped.end + 29 * DAY)


def test_an_older_week_is_not_over_because_newer_ones_were_frozen(at: Settings) -> None:
    weeks = [W47, W47.next, W47.next.next]
    frozen_week(at, W47, mailed=())
    frozen_week(at, weeks[1])
    sources = {"emails": collect_emails}
    first = watch_once(installed(at), weeks[1].end + HOUR, sources)
    assert [one.title() for one in first.notified.alerts] == [
        "firing (risk) emails-open of 2026-W47"
    ]
    frozen_week(at, weeks[2])
    second = watch_once(installed(at), weeks[1].end + 2 * HOUR, sources)
    assert second.notified.alerts == []
    measured = {one.labels["week"] for one in second.observations.measures if one.name == "emails"}
    assert measured == {str(week) for week in weeks[1:]}
    for client in CLIENTS:
        record(at, W47, client, DeliveryState.SENT)
    third = watch_once(installed(at), weeks[1].end + 3 * HOUR, sources)
    assert [str(one.state) for one in third.notified.alerts] == ["resolved"]


def test_lists_that_are_too_large_to_be_published_are_found_as_long_as_they_are(
    kafka: MemoryKafka,
) -> None:
    def lists() -> list[Condition]:
        return collect_share_holders(installed(kafka.settings), W47.end).conditions

    def published(number: int, holders: dict[str, list[str]]) -> None:
        view = held(kafka, number, holders)
        snapshots.commit(installed(kafka.settings).tables, view)
        publish(installed(kafka.settings), view)

    assert lists() == []
    limit(kafka, 2_000)
    many = [str(number) for number in range(1000)]
    published(1, {"many": many, "few": ["1"], "none": []})
    [found] = lists()
    assert (found.rule, found.subject) == ("lists-too-large", "share-holders")
    assert "too large for a record of 2000 bytes" in found.text
    assert found.text.endswith("many (1000 positions)")
    published(2, {"many": ["1"], "few": ["1"]})
    assert lists() == []


def test_requests_that_kafka_deleted_unread_are_told_by_the_dispatch(
    kafka: MemoryKafka,
) -> None:
    at = kafka.settings.model_copy(update={"alerts": "nonsense://x"})  # a channel that takes none
    rules = RequestRules(frozenset(), 6 * DAY, at.partitions, W47.end)

    def dispatch() -> list[str]:
        runs = create_autospec(AirflowRuns, instance=True)
        return PartitionDispatch(installed(at), 0, runs, rules).run().lost

    assert dispatch() == []
    place = TopicPartition(at.topic("run-requests"), 0)
    for _ in range(3):
        ask(at, b"k", b"{}", partition=0)
    kafka.broker.log(place).delete_before(2)
    assert dispatch() == ["run-requests[0]@0 to 1"]
    events = [
        one
        for one in history.list_firing(installed(at).tables)
        if one.condition.rule == "requests-lost"
    ]
    assert [one.condition.severity for one in events] == ["loss"]
    assert events[0].told.keys() == {"alerts.log"}  # kept for the channel
    said = (at.home / "alerts.log").read_text()
    assert "Kafka deleted run requests before they were read: run-requests[0]@0 to 1" in said
    assert dispatch() == []
