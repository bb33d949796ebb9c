"""Whom a run mails: as its dry run said, and not who unsubscribes meanwhile."""

import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders.model.view_tables import CLIENTS
from shardpost.settings import Settings
from shardpost.weekly_email import dry_runs
from shardpost.weekly_email.dry_runs import DryRunList
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.send_plan import (
    MailToSend,
    NoMail,
    Step,
    SubscriptionsUnknownError,
    Unsubscribed,
)
from shardpost.weekly_email.spark.dry_run import lines_of
from tests.support import members
from tests.support.histories import overwrite, snapshot
from tests.support.installed import installed
from tests.support.members import MEMBERS, WEEK
from tests.support.object_store import folder_of

EARLY = datetime(2026, 11, 20, tzinfo=UTC)
COLUMNS = pa.schema([*MEMBERS, ("shard", pa.int32())])
LONG = "x" * 2000


def member(client: str, **more: Any) -> dict[str, Any]:
    now = {"email_now": f"new-{client}@x.example"}
    return members.member(client, shard=1, **now | more)


def lists(
    rows: Iterable[dict[str, Any]],
    ledger: LedgerIndex | None = None,
    *,
    resend: ResendPolicy | None = None,
    is_early: bool = False,
) -> dict[str, list[Any]]:
    made = members.plan(ledger, resend, as_of=EARLY if is_early else WEEK.end)
    batch = pa.RecordBatch.from_pylist(list(rows), COLUMNS)
    with TemporaryDirectory() as folder:
        counts = dry_runs.write(Path(folder), lines_of(batch, made))
        found = {str(kind): [*dry_runs.lines(Path(folder), kind)] for kind in DryRunList}
    assert counts == {kind: len(lines) for kind, lines in found.items()}
    return {kind: lines for kind, lines in found.items() if lines}


def whys(found: list[dict[str, Any]]) -> dict[str, str]:
    return {one["client"]: one["reason"] for one in found}


EVERYBODY = [
    member("gets"),
    member("off", subscribed=False),
    member("deleted", subscribed=None),
    member("unheard", has_contact=False, subscribed=None, email=None),
    member("blank", email=None),
    member("bad", email="nonsense"),
    member(LONG, email="long@x.example"),
    *map(member, ("sent", "unknown", "failed", "suppressed", "resent")),
]
LEDGER = LedgerIndex.fold(
    [
        *(LedgerEntry(s, DeliveryState(s)) for s in ("sent", "unknown", "failed", "suppressed")),
        LedgerEntry("resent", DeliveryState.UNKNOWN, resends=1),
    ]
)


def test_everybody_is_in_one_list_with_why() -> None:
    found = lists(EVERYBODY, LEDGER)
    assert found["recipients"] == [
        {"client": "gets", "email": "gets@x.example", "shard": 1, "positions": ["gets"]}
    ]
    assert whys(found["suppressed"]) == {
        "off": "not subscribed",
        "deleted": "not subscribed: its record in `clients` was deleted",
    }
    failed = whys(found["failed"])
    assert failed.pop("bad").startswith("unusable e-mail address 'nonsense'")
    assert failed.pop(LONG).startswith("header ")
    assert failed == {
        "unheard": "no contact: the client has no record in `clients`",
        "blank": "no e-mail address",
    }
    unchanged = whys(found["unchanged"])
    assert unchanged["sent"] == "sent already"
    assert unchanged["unknown"].startswith("delivery unknown: held")
    assert unchanged["resent"].endswith("left to a person")
    assert "--again FAILED" in unchanged["failed"]
    assert "--again SUPPRESSED" in unchanged["suppressed"]
    named = [one["client"] for kind in found for one in found[kind]]
    assert sorted(named) == sorted(row["client"] for row in EVERYBODY)


POLICIES = [
    ResendPolicy(),
    ResendPolicy(resend_unknown=True),
    ResendPolicy(again_failed=True),
    ResendPolicy(again_suppressed=True),
]


@pytest.mark.parametrize("resend", POLICIES)
@pytest.mark.parametrize("is_early", [False, True])
def test_a_run_does_what_the_dry_run_said(resend: ResendPolicy, is_early: bool) -> None:
    found = lists(EVERYBODY, LEDGER, resend=resend, is_early=is_early)
    batch = pa.RecordBatch.from_pylist(EVERYBODY, COLUMNS)
    done: dict[str, set[str]] = defaultdict(set)
    made = members.plan(LEDGER, resend, as_of=EARLY if is_early else WEEK.end)
    for step in made.steps([batch]):
        match step:
            case MailToSend(mail):
                done["recipients"].add(mail.client)
            case NoMail(entry) if entry.state is not None:
                done[str(entry.state)].add(entry.client)
    said = {kind: {one["client"] for one in found.get(kind, [])} for kind in found}
    left_alone = said.pop("unchanged")
    assert said == done
    assert left_alone == {row["client"] for row in EVERYBODY} - set().union(*done.values())


def test_who_failed_and_is_mailed_again_is_listed_with_the_address_of_now() -> None:
    found = lists([member("failed")], LEDGER, resend=ResendPolicy(again_failed=True))
    assert found["recipients"][0]["email"] == "new-failed@x.example"


def test_in_an_early_week_whom_no_mail_can_be_written_to_stays_open() -> None:
    found = lists(EVERYBODY, LEDGER, is_early=True)
    assert {one["client"] for one in found["failed"]} == {LONG}
    unchanged = whys(found["unchanged"])
    assert unchanged["unheard"] == (
        "not mailed yet: no contact: the client has no record in `clients`"
    )
    assert unchanged["blank"] == "not mailed yet: no e-mail address"
    assert "bad" in unchanged
    assert {one["client"] for one in found["suppressed"]} == {"off", "deleted"}


SUBSCRIBED = {"a": True, "b": True, "c": True, "d": False}


@pytest.fixture
def at(tmp_path: Path) -> Settings:
    """Give tables with one snapshot."""
    settings = Settings(home=tmp_path)
    commit(settings, 1, {client: (1, subscribed) for client, subscribed in SUBSCRIBED.items()})
    return settings


def commit(settings: Settings, number: int, clients: dict[str, tuple[int, bool | None]]) -> None:
    """Commit a snapshot; of each client since which snapshot, and subscribed, or None: deleted."""
    rows = [
        {"key": key, "snapshot": since, "is_open": subscribed is not None, "subscribed": subscribed}
        for key, (since, subscribed) in clients.items()
    ]
    version = overwrite(settings, CLIENTS, rows)
    snapshots.commit(installed(settings).tables, snapshot(number, {CLIENTS.name: version}))


def asking(settings: Settings, since: int) -> Unsubscribed:
    """Return who asks the tables anew for each client."""
    return Unsubscribed(installed(settings).tables, since, interval=1e-9)


def unsubscribed(ask: Unsubscribed) -> set[str]:
    return {client for client in SUBSCRIBED if ask(client)}


def test_what_changed_since_the_run_began_is_found_and_nothing_else(at: Settings) -> None:
    ask = asking(at, 1)
    assert unsubscribed(ask) == set()
    commit(at, 2, {"a": (2, False), "b": (2, None), "c": (2, True), "d": (1, False)})
    assert unsubscribed(ask) == {"a", "b"}
    commit(at, 3, {"a": (3, True), "b": (2, None), "c": (2, True), "d": (1, False)})
    assert unsubscribed(ask) == {"b"}
    assert unsubscribed(asking(at, 3)) == set()


def test_within_the_interval_nothing_is_asked_again(at: Settings) -> None:
    ask = Unsubscribed(installed(at).tables, 1, interval=3600)
    assert unsubscribed(ask) == set()
    commit(at, 2, dict.fromkeys(SUBSCRIBED, (2, False)))
    assert unsubscribed(ask) == set()
    assert unsubscribed(asking(at, 1)) == set(SUBSCRIBED)


def test_tables_that_cannot_be_read_are_not_taken_for_nobody(at: Settings) -> None:
    ask = asking(at, 1)
    commit(at, 2, dict.fromkeys(SUBSCRIBED, (2, False)))
    shutil.rmtree(folder_of(at, CLIENTS))
    with pytest.raises(SubscriptionsUnknownError, match="which clients have unsubscribed"):
        ask("a")


def batches() -> list[pa.RecordBatch]:
    rows = [
        members.member(client, subscribed=subscribed) for client, subscribed in SUBSCRIBED.items()
    ]
    return [pa.RecordBatch.from_pylist(rows, MEMBERS)]


def step_of(step: Step) -> tuple[str, str]:
    if isinstance(step, MailToSend):
        assert f"\r\n{step.mail.client} ".encode() in step.mail.content  # its own position
        return step.mail.client, "mail"
    assert isinstance(step, NoMail)
    return step.entry.client, f"{step.entry.state}: {step.entry.reason}"


def test_who_unsubscribes_between_two_mails_is_suppressed(at: Settings) -> None:
    steps = members.plan(has_unsubscribed=asking(at, 1)).steps(batches())
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
    found = members.plan(has_unsubscribed=asking(at, 1))
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
    found = members.plan(has_unsubscribed=asking(at, 1))
    steps = found.steps(batches())
    assert step_of(next(steps)) == ("a", "mail")
    commit(at, 2, dict.fromkeys(SUBSCRIBED, (2, True)))
    shutil.rmtree(folder_of(at, CLIENTS))
    assert list(steps) == []
    assert "mailing stopped" in str(found.stop_reason)


def test_a_template_that_goes_wrong_stops_the_steps_and_makes_nobody_final() -> None:
    wrong = "{{ 1 // (name | length - 3) }}"  # not with the names of the samples
    files = (("subject.txt", wrong),)
    found = members.plan()
    found.context = replace(found.context, templates=MailTemplates(files, "/look"))
    rows = [members.member(client) for client in ("a", "bcd", "e")]
    batch = pa.RecordBatch.from_pylist(rows, MEMBERS)
    assert [step_of(step) for step in found.steps([batch])] == [("a", "mail")]
    assert "/look/subject.txt, line 1: " in str(found.stop_reason)
    assert "with the values of client bcd" in str(found.stop_reason)
    again = replace(found, stop_reason=None)
    with pytest.raises(ShardpostError, match=r"subject\.txt, line 1"):
        list(lines_of(pa.RecordBatch.from_pylist([member("bcd")], COLUMNS), again))
