"""Who unsubscribes while a run mails is not mailed any more."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from shardpost.delta import snapshots
from shardpost.delta.query import path_of
from shardpost.holders.model.view_tables import CLIENTS
from shardpost.settings import Settings
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, ResendPolicy
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.send_plan import (
    MailToSend,
    NoMail,
    Step,
    SubscriptionsUnknownError,
    Unsubscribed,
)
from tests.support.histories import overwrite, snapshot
from tests.support.members import MEMBERS, member, plan

SUBSCRIBED = {"a": True, "b": True, "c": True, "d": False}


@pytest.fixture
def at(tmp_path: Path) -> Settings:
    """Give tables with one snapshot, of which clients are asked for each time."""
    settings = Settings.model_validate({"home": tmp_path, "mail_subscription_interval": 1e-9})
    commit(settings, 1, {client: (1, subscribed) for client, subscribed in SUBSCRIBED.items()})
    return settings


def commit(settings: Settings, number: int, clients: dict[str, tuple[int, bool | None]]) -> None:
    """Commit a snapshot; of each client since which snapshot, and subscribed, or None: deleted."""
    rows = [
        {"key": key, "snapshot": since, "is_open": subscribed is not None, "subscribed": subscribed}
        for key, (since, subscribed) in clients.items()
    ]
    version = overwrite(settings, CLIENTS, rows)
    snapshots.commit(settings, snapshot(number, {CLIENTS.name: version}))


def unsubscribed(ask: Unsubscribed) -> set[str]:
    return {client for client in SUBSCRIBED if ask(client)}


def test_what_changed_since_the_run_began_is_found_and_nothing_else(at: Settings) -> None:
    ask = Unsubscribed(at, 1)
    assert unsubscribed(ask) == set()
    commit(at, 2, {"a": (2, False), "b": (2, None), "c": (2, True), "d": (1, False)})
    assert unsubscribed(ask) == {"a", "b"}
    commit(at, 3, {"a": (3, True), "b": (2, None), "c": (2, True), "d": (1, False)})
    assert unsubscribed(ask) == {"b"}
    assert unsubscribed(Unsubscribed(at, 3)) == set()


def test_within_the_interval_nothing_is_asked_again(at: Settings) -> None:
    ask = Unsubscribed(at.model_copy(update={"mail_subscription_interval": 3600}), 1)
    assert unsubscribed(ask) == set()
    commit(at, 2, dict.fromkeys(SUBSCRIBED, (2, False)))
    assert unsubscribed(ask) == set()
    assert unsubscribed(Unsubscribed(at, 1)) == set(SUBSCRIBED)


def test_tables_that_cannot_be_read_are_not_taken_for_nobody(at: Settings) -> None:
    ask = Unsubscribed(at, 1)
    commit(at, 2, dict.fromkeys(SUBSCRIBED, (2, False)))
    shutil.rmtree(path_of(at, CLIENTS))
    with pytest.raises(SubscriptionsUnknownError, match="who has unsubscribed"):
        ask("a")


def batches() -> list[pa.RecordBatch]:
    rows = [member(client, subscribed=subscribed) for client, subscribed in SUBSCRIBED.items()]
    return [pa.RecordBatch.from_pylist(rows, MEMBERS)]


def step_of(step: Step) -> tuple[str, str]:
    if isinstance(step, MailToSend):
        assert f"\r\n{step.mail.client} ".encode() in step.mail.content  # its own position
        return step.mail.client, "mail"
    assert isinstance(step, NoMail)
    return step.entry.client, f"{step.entry.state}: {step.entry.reason}"


def test_who_unsubscribes_between_two_mails_is_suppressed(at: Settings) -> None:
    steps = plan(has_unsubscribed=Unsubscribed(at, 1)).steps(batches())
    assert step_of(next(steps)) == ("a", "mail")
    commit(at, 2, {"a": (2, False), "b": (2, False), "c": (1, True), "d": (1, False)})
    assert [step_of(step) for step in steps] == [
        ("b", f"{DeliveryState.SUPPRESSED}: not subscribed: since this run began"),
        ("c", "mail"),
        ("d", f"{DeliveryState.SUPPRESSED}: not subscribed"),
    ]


def test_who_was_suppressed_is_mailed_again_only_if_asked_for_and_subscribed_now(
    at: Settings,
) -> None:
    found = plan(has_unsubscribed=Unsubscribed(at, 1))
    found.ledger_index = LedgerIndex.fold(
        [LedgerEntry(client, DeliveryState.SUPPRESSED, "<1@x>") for client in SUBSCRIBED]
    )
    assert list(found.steps(batches())) == []
    found.resend = ResendPolicy(again_suppressed=True)
    assert [step_of(step) for step in found.steps(batches())] == [
        (client, "mail" if subscribed else f"{DeliveryState.SUPPRESSED}: not subscribed")
        for client, subscribed in SUBSCRIBED.items()
    ]


def test_without_an_answer_the_steps_end_and_say_why(at: Settings) -> None:
    found = plan(has_unsubscribed=Unsubscribed(at, 1))
    steps = found.steps(batches())
    assert step_of(next(steps)) == ("a", "mail")
    commit(at, 2, dict.fromkeys(SUBSCRIBED, (2, True)))
    shutil.rmtree(path_of(at, CLIENTS))
    assert list(steps) == []
    assert "mailing stopped" in str(found.stop_reason)
    assert found.open_clients == 4
