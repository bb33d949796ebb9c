"""A dry run puts each client into one list, and a run right after it does just that."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from shardpost.weekly_email.dry_run_lists import ShardLines
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, ResendPolicy
from shardpost.weekly_email.model.ledger_index import LedgerIndex
from shardpost.weekly_email.send_plan import MailToSend, NoMail
from tests.support import members
from tests.support.members import MEMBERS, WEEK

EARLY = datetime(2026, 11, 20, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        *MEMBERS,
        *((name, pa.bool_()) for name in ("is_member", "was_member")),
        ("shard", pa.int32()),
    ]
)
LONG = "x" * 2000


def member(client: str, **more: Any) -> dict[str, Any]:
    now = {"email_now": f"new-{client}@x.example"}
    return members.member(client, is_member=True, shard=1, **{"was_member": False} | now | more)


def gone(client: str) -> dict[str, Any]:
    return {"client": client, "is_member": False, "was_member": True, "shard": 1}


def index(states: Mapping[str, DeliveryState]) -> LedgerIndex:
    return LedgerIndex.fold(LedgerEntry(client, state) for client, state in states.items())


def lists(
    rows: Iterable[dict[str, Any]],
    ledger: LedgerIndex | None = None,
    before: LedgerIndex | None = None,
    *,
    resend: ResendPolicy | None = None,
    is_early: bool = False,
) -> dict[str, list[Any]]:
    made = members.plan(ledger, resend, as_of=EARLY if is_early else WEEK.end)
    batch = pa.RecordBatch.from_pylist(list(rows), COLUMNS)
    found = defaultdict(list)
    for line in ShardLines(made, before).of_batch(batch):
        found[str(line.list)].append(json.loads(line.text))
    return dict(found)


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
        "remains open: no contact: the client has no record in `clients`"
    )
    assert unchanged["blank"] == "remains open: no e-mail address"
    assert "bad" in unchanged
    assert {one["client"] for one in found["suppressed"]} == {"off", "deleted"}


def test_new_are_those_who_get_one_now_and_got_none_before_and_left_the_reverse() -> None:
    rows = [
        member("same", was_member=True),
        member("new"),
        member("sent", was_member=False),
        member("off", was_member=True, subscribed=False),
        member("mended", was_member=True),
        member("still bad", was_member=True, email="nonsense"),
        gone("sold"),
        gone("sold, was off"),
    ]
    before = index(
        {
            "same": DeliveryState.SENT,
            "mended": DeliveryState.FAILED,
            "still bad": DeliveryState.FAILED,
            "sold, was off": DeliveryState.SUPPRESSED,
        }
    )
    found = lists(rows, LEDGER, before)
    assert found["new"] == ["new", "sent", "mended"]
    assert found["left"] == ["off", "sold"]


def test_without_a_week_before_nobody_is_new() -> None:
    assert set(lists(EVERYBODY)) == {"recipients", "suppressed", "failed"}
