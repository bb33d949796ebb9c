"""Who sees what on pages of texts: those that name clients are not for all; Kafka in memory."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from shardpost.alerts import notifier
from shardpost.alerts.model.alert import REPORTED, Condition, Silence
from shardpost.alerts.model.metrics import METRICS
from shardpost.decisions import decisions_topic
from shardpost.delta import snapshots
from shardpost.holders.plausibility import CollapseError
from shardpost.holders.publishing import publish
from shardpost.locks.refused_runs import noting
from shardpost.settings import Settings
from shardpost.topics.model.finding import Severity
from shardpost.watch.sources import collect_emails, collect_share_holders
from shardpost.watch.watch import watch_once
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import late_line
from tests.support.committed_snapshot import held, limit
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.page_client import PageClient, page_client
from tests.support.written_weeks import begin, freeze, record

W47 = IsoWeek.parse("2026-W47")
NOW = W47.end + timedelta(hours=1)
CLIENTS = ["acme-bank", "borg-fund", "cora-trust"]
SOURCES = {"emails": collect_emails, "share-holders": collect_share_holders}


@pytest.fixture
def watched(kafka: MemoryKafka) -> Settings:
    """Give a home whose alerts name clients: one failed, one unknown, one holds very much."""
    limit(kafka, 2_000)
    view = held(kafka, 1, {"cora-trust": [str(number) for number in range(1000)]})
    snapshots.commit(installed(kafka.settings).tables, view)
    publish(installed(kafka.settings), view)
    begin(kafka.settings, W47, W47.end)
    freeze(kafka.settings, W47, CLIENTS, W47.end)
    record(kafka.settings, W47, "acme-bank", DeliveryState.FAILED, "550 no such user")
    record(kafka.settings, W47, "borg-fund", DeliveryState.SENDING)
    watch_once(installed(kafka.settings), NOW, SOURCES)
    return kafka.settings


@pytest.fixture
def operator(watched: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageClient]:
    """Give the page to a user who has rights on watch_kafka alone."""
    with page_client(watched, monkeypatch, sees=["watch_kafka"]) as page:
        yield page


def whole(page: PageClient) -> str:
    """Return all that the overview and the alerts show, in every form."""
    paths = ["", "alerts"]
    keys = [one["key"] for one in page.json("alerts")]
    shown = [page.get("alerts/one", key=key) for key in keys]
    shown += [str(page.json("alerts/one", key=key)) for key in keys]
    for path in paths:
        shown += [page.get(path), str(page.json(path)), "\n".join(page.csv(path))]
    return "\n".join(shown)


def named_in(text: str) -> list[str]:
    return [client for client in CLIENTS if client in text]


def test_alerts_name_clients_to_who_may_see_clients(
    watched: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with page_client(watched, monkeypatch) as page:
        assert named_in(whole(page)) == CLIENTS


def test_who_may_see_no_clients_gets_the_alerts_with_counts_alone(operator: PageClient) -> None:
    assert named_in(whole(operator)) == []
    texts = {one["key"]: one["text"] for one in operator.json("alerts")}
    assert texts["emails-unknown:2026-W47"] == ("it is unknown whether 1 client got the e-mail")
    assert "1 of 3 clients failed, and nobody was mailed" in texts["emails-failed:2026-W47"]
    assert texts["lists-too-large:share-holders"].startswith("1 client has a list too large")
    assert "Clients are named here to users who may see the DAGs" in operator.get("alerts")


@pytest.mark.parametrize("missing", ["compact_positions", "weekly_email", "sweep_dead_letters"])
def test_a_right_that_is_missing_hides_clients(
    watched: Settings, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    dags = {"watch_kafka", "compact_positions", "weekly_email", "sweep_dead_letters"}
    with page_client(watched, monkeypatch, sees=dags - {missing}) as page:
        assert named_in(whole(page)) == []


def test_an_alert_that_says_nothing_of_it_is_hidden_with_why_it_was_silenced(
    watched: Settings, operator: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions_topic, "record", lambda *_, **__: None)
    text = "d r1 t: weekly-emails[3]@41: acme-bank is no client"
    found = Condition("task-failed", "d t", Severity.RISK, text, "it is not done", REPORTED)
    notifier.report(installed(watched), found, NOW)
    far = Silence(NOW + timedelta(days=10_000), "anna", "borg-fund knows")
    notifier.silence(installed(watched), "task-failed:d t", far, NOW)
    assert named_in(whole(operator)) == []
    [shown] = [one for one in operator.json("alerts") if one["key"] == "task-failed:d t"]
    assert (shown["text"], shown["silenced_by"]) == ("it is not done", "anna")


def test_why_a_compaction_was_refused_is_hidden_like_its_alert(
    watched: Settings, operator: PageClient
) -> None:
    with pytest.raises(CollapseError), noting(installed(watched).files, "compact_positions"):
        raise CollapseError("acme-bank has no positions any more")
    assert named_in(whole(operator)) == []
    needs = {one["what"]: one["text"] for one in operator.json("")["needs"]}
    assert needs["compaction-refused"].startswith("nothing is published")


def test_records_that_are_late_are_counted_without_their_clients() -> None:
    assert late_line({"missed": 1, "changed": 1, "clients": ()}).endswith("for these (…)")


def test_no_metric_has_a_label_that_names_a_client() -> None:
    labels = {label for metric in METRICS.values() for label in metric.labels}
    of_installation = {"group", "topic", "partition", "severity", "state", "week", "table"}
    assert labels == of_installation | {"source"}
