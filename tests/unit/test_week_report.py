"""What is said of the clients of a week: counts, causes, how many are too many, dry runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardpost.commands.email import _dry_run_document, counts_text
from shardpost.settings import load
from shardpost.values.addresses import UnusableAddress, check_address
from shardpost.weekly_email.dry_runs import DryRunList, text_lines, write
from shardpost.weekly_email.email_run import exit_code_of
from shardpost.weekly_email.limits import MailLimits, too_many, totals
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import (
    MOST_CAUSES,
    NO_REASON,
    STATES,
    Cause,
    ShardStatus,
    cause_of,
    causes_of,
    causes_text,
    joined,
    merged_causes,
    status_document,
)
from tests.support.installed import installed


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        (
            "550 5.1.1 <client1@x.example>: Recipient address rejected: User unknown",
            "550 5.1.1 <anna.b@y.example>: Recipient address rejected: User unknown",
            "550 5.1.1 …: Recipient address rejected: User unknown",
        ),
        (
            "550 no such user client1@x.example.",
            "550 no such user client2@x.example.",
            "550 no such user ….",
        ),
        (
            "452 4.2.2 mailbox full (at attempt 5 of 5)",
            "452 4.2.2 mailbox full (at attempt 5 of 5)",
            "452 4.2.2 mailbox full (at attempt 5 of 5)",
        ),
        (
            "550-5.1.1 no such user. a640c23a62f3a-aa1234si1.45 - gsmtp",
            "550-5.1.1 no such user. b123ff0e11111-bb9876si7.12 - gsmtp",
            "550-5.1.1 no such user. … - gsmtp",
        ),
        (
            "451 4.7.1 greylisted, see https://help.example/?id=1a2b",
            "451 4.7.1 greylisted, see https://help.example/?id=3c4d",
            "451 4.7.1 greylisted, see …",
        ),
        ("550 mailbox client1 is unknown", "550 mailbox c2 is unknown", "550 mailbox … is unknown"),
        (
            "ä1@x.example needs SMTPUTF8, which the mail server does not offer",
            "ö2@y.example needs SMTPUTF8, which the mail server does not offer",
            "… needs SMTPUTF8, which the mail server does not offer",
        ),
        (None, "", NO_REASON),
    ],
)
def test_what_differs_from_client_to_client_is_left_out(
    one: str | None, other: str | None, cause: str
) -> None:
    assert cause_of(one, "client1") == cause
    assert cause_of(other, "anna") == cause


def test_unusable_addresses_of_one_kind_are_one_cause() -> None:
    found = [check_address(text) for text in ("nonsense", "no address", "it's", 'a"b')]
    reasons = [one.reason for one in found if isinstance(one, UnusableAddress)]
    assert {cause_of(reason, "client1") for reason in reasons} == {
        "unusable e-mail address …: An email address must have an @-sign."
    }


def named_cause(reason: str, count: int, *clients: str) -> Cause:
    return Cause(reason=reason, count=count, clients=list(clients))


def test_different_causes_stay_apart() -> None:
    reasons = ["550 5.1.1 no such user", "550 5.7.1 no such user", "552 too big", "no contact"]
    assert [cause_of(reason, "client1") for reason in reasons] == reasons


def test_groups_are_counted_and_the_largest_comes_first() -> None:
    found = [("c1", "full"), ("c2", "gone"), ("c3", "gone"), ("c4", "gone"), ("c5", "gone")]
    assert causes_of(found) == [
        named_cause("gone", 4, "c2", "c3", "c4"),
        named_cause("full", 1, "c1"),
    ]
    assert len(causes_of((str(n), f"reason {n}") for n in range(100))) == MOST_CAUSES


def test_groups_of_several_shards_are_added_up() -> None:
    found = [
        named_cause("gone", 1, "c1"),
        named_cause("full", 2, "c2", "c3"),
        named_cause("gone", 3, "c4"),
    ]
    assert merged_causes(found) == [
        named_cause("gone", 4, "c1", "c4"),
        named_cause("full", 2, "c2", "c3"),
    ]


def test_a_message_names_the_largest_groups_and_cannot_steer_a_terminal() -> None:
    found = [
        named_cause("550 gone", 9, "c1", "c2", "c3"),
        named_cause("evil\x1b[2J", 2, "\n", "c5"),
        named_cause("a", 1, "c6"),
        named_cause("b", 1, "c7"),
    ]
    assert causes_text(found, 14) == (
        '9 with "550 gone" (c1, c2, c3, …); 2 with "evil\ufffd[2J" (\'\\n\', c5); 1 with "a" (c6);'
        " 2 for other reasons"
    )
    assert causes_text([], 5) == ""


def test_the_document_has_the_counts_of_each_shard_and_all_unknown_clients() -> None:
    counts = ShardStatus(1, sent=5, unknown=2, open=4, unknown_clients=("b", "a"))
    none = {"sent": 0, "failed": 0, "unknown": 0, "suppressed": 0, "open": 0}
    found = status_document(IsoWeek(2026, 47), [ShardStatus(0), counts])
    del found["causes"], found["without_contact"]
    assert found == {
        "week": "2026-W47",
        "shards": [
            {"shard": 0, **none},
            {"shard": 1, **none, "sent": 5, "unknown": 2, "open": 4},
        ],
        "unknown": ["a", "b"],
    }


WEEK = "2026-W47"
NONE = dict.fromkeys(STATES, 0)
LIMITS = installed(load({})).values(MailLimits)


def why(state: str, share: float, **counts: int) -> str | None:
    found = too_many(MailLimits(share, share), joined(WEEK, [{"shards": [NONE | counts]}]))
    return next((said for said, _ in found if f"--state {state}" in said), None)


@pytest.mark.parametrize(
    ("state", "share", "count", "sent", "is_too_many"),
    [
        *[("failed", 0.05, 5, 1, False), ("failed", 0.05, 6, 1, True)],
        *[("failed", 0.05, 6, 114, False), ("failed", 0.05, 7, 113, True)],
        ("failed", 0.05, 50, 950, False),
        *[("suppressed", 0.5, 5, 0, False), ("suppressed", 0.5, 6, 0, True)],
        *[("suppressed", 0.5, 6, 6, False), ("suppressed", 0.5, 7, 6, True)],
        ("suppressed", 0.5, 5000, 5000, False),
    ],
)
def test_too_many_is_more_than_a_number_and_more_than_a_share(
    state: str, share: float, count: int, sent: int, is_too_many: bool
) -> None:
    reason = why(state, share, **{state: count, "sent": sent})
    assert (reason is not None) is is_too_many


@pytest.mark.parametrize("others", [{}, {"suppressed": 9}, {"unknown": 9}, {"open": 9}])
@pytest.mark.parametrize("failed", [1, 4])
def test_failed_clients_of_a_week_in_which_nobody_was_mailed_are_always_too_many(
    failed: int, others: dict[str, int]
) -> None:
    reason = why("failed", 1, failed=failed, **others)
    assert reason is not None
    assert f"{failed} of {failed + sum(others.values())} clients failed, and nobody was mailed" in (
        reason
    )
    assert "`shardpost email --week 2026-W47 --again FAILED`" in reason


def test_a_week_in_which_nobody_failed_needs_nobody_to_be_mailed() -> None:
    assert why("failed", 0) is None
    assert why("failed", 0, suppressed=1, open=1) is None


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (
            {"failed": 600, "sent": 300, "suppressed": 100},
            f"{WEEK}: 600 of 1000 clients failed, more than"
            f" SHARDPOST_MAIL_FAILED_SHARE allows. `shardpost emails --week {WEEK} --state failed`"
            " lists them all. Fix the mail server, or the addresses in the topic `clients`,"
            f" compact, and run `shardpost email --week {WEEK} --again FAILED`, which uses the new"
            " contacts.",
        ),
        (
            {"suppressed": 999, "sent": 1},
            f"{WEEK}: 999 of 1000 clients are not subscribed, more than"
            " SHARDPOST_MAIL_SUPPRESSED_SHARE allows."
            f" `shardpost emails --week {WEEK} --state suppressed` lists them all. If they have not"
            " unsubscribed, fix their records in the topic `clients`, compact, and run"
            f" `shardpost email --week {WEEK} --again SUPPRESSED`, which mails those who are"
            " subscribed by then.",
        ),
    ],
)
def test_the_reason_says_how_many_and_the_way_back(counts: dict[str, int], reason: str) -> None:
    shards = [NONE | {"shard": 7, state: count} for state, count in counts.items()]
    assert totals(shards) == NONE | counts
    parts = [{"shards": shards[:1]}, {"shards": shards[1:]}, {}]
    assert too_many(LIMITS, joined(WEEK, parts)) == [(reason, reason)]


EVIL = "c\x1b[2J\u202e\n1"
HARMLESS = "c\ufffd[2J\ufffd\ufffd1"
SHOWN = repr(EVIL)


def test_unknown_clients_are_listed_harmlessly_and_what_to_do_is_named() -> None:
    text = counts_text({"week": "2026-W47", "shards": [], "unknown": [EVIL, "client2"]})
    assert f"delivery unknown: {SHOWN}, client2\n" in text
    assert "`shardpost emails resolve`" in text


def dry_run_of(**counts: int) -> dict[str, Any]:
    all_counts = dict.fromkeys(map(str, DryRunList), 0) | counts
    return {"week": "2026-W47", "counts": all_counts, "unknown_exchanges": {}}


def test_a_dry_run_names_everybody_under_a_heading_and_ends_with_the_counts(
    tmp_path: Path,
) -> None:
    lines: list[dict[str, Any]] = [
        {"list": "suppressed", "client": "c1", "shard": 1, "reason": "why"},
        {"list": "failed", "client": "c2", "shard": 1, "reason": "why"},
    ]
    result = dry_run_of(suppressed=1, failed=1)
    result["unknown_exchanges"] = {"TSE": 2}
    assert write(tmp_path, lines) == result["counts"]
    assert "".join(text_lines(result, tmp_path)).splitlines() == [
        *("would be suppressed:", "c1, shard 1: why", "would fail:", "c2, shard 1: why"),
        "0 would get an e-mail, 1 would be suppressed, 1 would fail, 2 open positions on exchanges"
        " without a country ('TSE' 2); nothing was sent",
    ]


def test_a_log_has_the_first_of_a_list_and_what_lists_the_others(tmp_path: Path) -> None:
    line = {"list": "failed", "shard": 1, "reason": "why"}
    write(tmp_path, [{**line, "client": f"c{n}"} for n in (1, 2, 3)])
    assert "".join(text_lines(dry_run_of(failed=3), tmp_path, 1)).splitlines()[:3] == [
        "would fail:",
        "c1, shard 1: why",
        "… and 2 more: `shardpost email --week 2026-W47 --dry-run` lists them",
    ]


def test_the_json_of_a_dry_run_is_one_document_with_all_lists(tmp_path: Path) -> None:
    named = [("failed", "c3"), ("failed", "c4"), ("recipients", "c5")]
    more = {"shard": 1, "email": "c5@x.example", "positions": ["7", "8"], "reason": "why"}
    write(tmp_path, ({"list": kind, "client": one} | more for kind, one in named))
    result = dry_run_of()
    assert json.loads("".join(_dry_run_document(result, tmp_path))) == {
        **result,
        "suppressed": [],
        "unchanged": [],
        "failed": [{"client": c, "shard": 1, "reason": "why"} for c in ("c3", "c4")],
        "recipients": [
            {"client": "c5", "shard": 1, "email": "c5@x.example", "positions": ["7", "8"]}
        ],
    }


def test_who_would_get_an_e_mail_is_listed_harmlessly(tmp_path: Path) -> None:
    row = {"client": EVIL, "email": f"{EVIL}@x", "shard": 1, "positions": [EVIL]}
    write(tmp_path, [{"list": "recipients", **row}])
    assert list(text_lines(dry_run_of(recipients=1), tmp_path)) == [
        f"{SHOWN} <{HARMLESS}@x>, shard 1: {SHOWN}\n",
        "1 would get an e-mail; nothing was sent\n",
    ]


def test_what_stopped_a_shard_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    document = status_document(IsoWeek(2026, 47), [])
    assert exit_code_of(LIMITS, document, [f"shard 2: 1 clients remain open: {EVIL}: DATA"]) == 1
    assert capsys.readouterr().err == (
        f"shardpost: shard 2: 1 clients remain open: {HARMLESS}: DATA\n"
    )


def test_too_many_failed_clients_are_named_with_why_and_what_lists_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = named_cause("550 no such user", 500, "c1", "c2", "c3")
    causes = {"failed": [refused, named_cause(f"no contact{EVIL}", 2, EVIL, "c9")]}
    shards = [ShardStatus(0, sent=2, failed=502, causes=causes)]
    assert exit_code_of(LIMITS, status_document(IsoWeek(2026, 47), shards), []) == 3
    said = capsys.readouterr().err
    assert said.startswith("shardpost: 2026-W47: 502 of 504 clients failed, more than SHARDPOST_")
    assert '500 with "550 no such user" (c1, c2, c3, …); 2 with "no contact' in said
    assert f"({SHOWN}, c9)" in said
    assert "`shardpost emails --week 2026-W47 --state failed` lists them all" in said
    assert said.count("\n") == 1
