"""`shardpost letters` as people use it on what is parked: plan, apply, and what is recorded."""

import getpass
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardpost.dead_letters.model.letter_format import ATTEMPT
from shardpost.dead_letters.model.redrive_request import VALUE_BYTES
from shardpost.settings import Settings
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.letter_world import (
    START,
    committed,
    decisions,
    failed,
    header,
    live,
    open_transaction_behind,
    original,
    put,
    ready_for_letters,
    retries,
    seen,
    sweep,
    total,
)


@pytest.fixture
def ready(settings: Settings) -> Settings:
    return ready_for_letters(settings, partitions=2, retry_attempts=0, lock_wait=1.0)


def park(settings: Settings, count: int, error: str = "ValueError: bad") -> None:
    put(settings, [failed(settings, original(n, b"k%d" % n), error) for n in range(count)])
    assert total(sweep(settings, START)) == {"parked": count}


def test_a_plan_changes_nothing_and_apply_sends_all_of_it_back(
    ready: Settings, shardpost: CommandLine
) -> None:
    park(ready, 3)
    plan = shardpost.json("letters", "redrive", "--origin", "positions")
    [group] = plan["groups"]
    assert (group["origin"], group["letters"], plan["done"]) == ("positions", 3, None)
    assert retries(ready) == []
    assert len(live(ready, ready.topic("parking-lot"))) == 3
    by = ("--by", "anna")
    done = shardpost.json("letters", "redrive", "--apply", "--why", "schema is mended", *by)
    assert done["done"] == 3
    assert seen(ready) == {(f"positions-0-{n}", "1"): 1 for n in range(3)}
    assert live(ready, ready.topic("parking-lot")) == {}
    decided = decisions(ready)
    assert {one["About"] for one in decided} == {f"positions-0-{n}" for n in range(3)}
    assert {(one["Kind"], one["Who"], one["Why"]) for one in decided} == {
        ("redriven", "anna", "schema is mended")
    }
    states = {one["state"] for one in shardpost.json("letters", "list")}
    assert states == {"redriven"}
    assert shardpost.json("letters", "redrive", "--apply", "--why", "again")["done"] == 0


def test_the_list_names_what_an_open_transaction_hides(
    ready: Settings, shardpost: CommandLine
) -> None:
    put(ready, [failed(ready, original(7))])
    [letter] = committed(ready, ready.topic("dead-letters"))
    stranger = open_transaction_behind(ready, letter)
    put(ready, [failed(ready, original(8))])
    listed = shardpost.run("letters", "list", "--json")
    assert [one["letter_id"] for one in json.loads(listed.stdout)] == ["positions-0-7"]
    assert f"{letter.topic}[{letter.partition}]: offsets 1 to 2, after an open" in listed.stderr
    stranger.abort_transaction(10)
    listed = shardpost.run("letters", "list", "--json")
    assert len(json.loads(listed.stdout)) == 2
    assert "open transaction" not in listed.stderr


def test_filters_canary_and_discard_take_no_other(ready: Settings, shardpost: CommandLine) -> None:
    park(ready, 6)
    put(ready, [failed(ready, original(50, topic="clients"), "OSError: gone")])
    assert total(sweep(ready, START)) == {"parked": 1}
    why = ("--apply", "--why", "try one")
    assert shardpost.json("letters", "redrive", "--canary", "2", "--rate", "50", *why)["done"] == 2
    for choice in (("--error", "OSError-00000000"), ("--since", "2999-01-01")):
        assert shardpost.json("letters", "discard", *choice, *why)["done"] == 0
    left = sorted((key or b"").decode() for key in live(ready, ready.topic("parking-lot")))
    assert shardpost.json("letters", "discard", "--canary", "2")["letters"] == 2
    output = shardpost("letters", "discard", "--canary", "9")
    planned = "5 would be discarded; to apply exactly this, add --apply --up-to "
    assert output.splitlines()[-1].startswith(planned)
    assert shardpost.json("letters", "discard", "--id", left[0], *why)["done"] == 1
    assert sorted((k or b"").decode() for k in live(ready, ready.topic("parking-lot"))) == left[1:]
    assert len(retries(ready)) == 2
    kinds = [one["Kind"] for one in decisions(ready)]
    assert sorted(kinds) == ["discarded", "redriven", "redriven"]


def test_an_id_that_is_not_parked_is_refused_and_the_others_go_on(
    ready: Settings, shardpost: CommandLine
) -> None:
    park(ready, 3)
    why = ("--apply", "--why", "x")
    assert shardpost.json("letters", "redrive", "--id", "positions-0-0", *why)["done"] == 1
    ids = ("--id", "positions-0-0", "--id", "nobody", "--id", "positions-0-1")
    plan = shardpost("letters", "redrive", *ids, code=3)
    assert "refused: 'nobody': no letter has this id; `shardpost letters list`" in plan
    assert "refused: positions-0-0: not parked: redriven 2" in plan
    assert "\n1 would be redriven" in plan
    done = shardpost.json("letters", "discard", *ids, *why, code=3)
    assert (done["done"], done["letters"], done["refused"]) == (1, 1, 2)
    assert [one["letter_id"] for one in done["refusals"]] == ["nobody", "positions-0-0"]
    other = ("--id", "positions-0-2", "--origin", ready.topic("clients"))
    [left_out] = shardpost.json("letters", "discard", *other, *why, code=3)["refusals"]
    assert "parked, but excluded by --origin" in left_out["reason"]
    assert list(live(ready, ready.topic("parking-lot"))) == [b"positions-0-2"]


def test_an_edited_value_is_sent_and_recorded_as_such(
    ready: Settings, shardpost: CommandLine, tmp_path: Path
) -> None:
    park(ready, 2)
    value = tmp_path / "value"
    value.write_bytes(b"mended \xff")
    edit = ("letters", "redrive", "--value", str(value))
    assert "--value applies to one letter" in shardpost.refused(*edit, code=2)
    large = tmp_path / "large"
    large.write_bytes(b"x" * (VALUE_BYTES + 1))
    mended = ("--id", "positions-0-1", "--apply", "--why", "a typo")
    output = shardpost.refused("letters", "redrive", "--value", str(large), *mended, code=2)
    assert (
        f"{large}: expected at most {VALUE_BYTES} bytes, the limit of a letter, found more"
        in output
    )
    shardpost(*edit, *mended)
    [retry] = retries(ready)
    assert (retry.key, retry.value) == (b"k1", b"mended \xff")
    [decided] = decisions(ready)
    assert (decided["Kind"], decided["About"]) == ("edited", "positions-0-1")
    shown = shardpost.json("letters", "show", "positions-0-1")
    [decision] = shown["decisions"]
    assert (decision["kind"], decision["who"], decision["why"]) == (
        "edited",
        getpass.getuser(),
        "a typo",
    )
    assert decision["when"] == decided["When"]
    [sent] = shown["retries"]
    assert (sent["attempt"], sent["value"]) == (1, "base64 bWVuZGVkIP8=")
    assert (shown["state"], shown["value"]) == ("redriven", "v")
    words = shardpost("letters", "show", "positions-0-1")
    assert f"attempt 1, {sent['where']}: value (8 bytes): base64 bWVuZGVkIP8=" in words
    assert f"{decided['When']}  edited    {getpass.getuser()}" in words
    assert shardpost.json("letters", "show", "positions-0-0")["decisions"] == []


def test_a_value_of_the_largest_size_is_redriven(
    ready: Settings, shardpost: CommandLine, tmp_path: Path
) -> None:
    park(ready, 1)
    value = tmp_path / "value"
    value.write_bytes(b"x" * VALUE_BYTES)
    edit = ("--id", "positions-0-0", "--value", str(value))
    assert shardpost.json("letters", "redrive", *edit, "--apply", "--why", "x")["done"] == 1
    assert [len(retry.value or b"") for retry in retries(ready)] == [VALUE_BYTES]


def test_a_letter_that_one_error_parked_twice_is_refused_unless_told_again(
    ready: Settings, shardpost: CommandLine
) -> None:
    park(ready, 1)
    why = ("--apply", "--why", "x")
    assert shardpost.json("letters", "redrive", *why)["done"] == 1
    [retry] = retries(ready)
    put(ready, [failed(ready, retry)])
    assert total(sweep(ready, START)) == {"parked": 1}
    refused = shardpost.json("letters", "redrive", *why, code=3)
    assert (refused["done"], refused["letters"], refused["refused"]) == (0, 0, 1)
    assert "parked 2 times by the same error" in refused["refusals"][0]["reason"]
    assert shardpost.json("letters", "redrive", "--again", *why)["done"] == 1
    assert sorted(header(r, ATTEMPT) or "" for r in retries(ready)) == ["1", "2"]
    again = [r for r in retries(ready) if header(r, ATTEMPT) == "2"]
    put(ready, [failed(ready, again[0], "KeyError: another")])
    assert total(sweep(ready, START)) == {"parked": 1}
    assert shardpost.json("letters", "redrive", *why)["done"] == 1


def test_a_letter_of_a_retry_topic_is_parked_and_can_only_be_discarded(
    ready: Settings, shardpost: CommandLine
) -> None:
    patient = ready.model_copy(update={"retry_attempts": 8})
    put(ready, [failed(ready, original(0, topic=ready.topic("retries")))])
    assert total(sweep(patient, START)) == {"parked": 1}
    [parked] = live(ready, ready.topic("parking-lot")).values()
    assert (header(parked, "parked-reason") or "").startswith("unknown origin: expected")
    refused = shardpost.json("letters", "redrive", "--apply", "--why", "x", code=3)
    assert (refused["done"], refused["letters"], refused["refused"]) == (0, 0, 1)
    assert "unknown origin" in refused["refusals"][0]["reason"]
    assert retries(ready) == []
    assert shardpost.json("letters", "discard", "--apply", "--why", "lost")["done"] == 1


def test_apply_without_a_reason_is_refused(shardpost: CommandLine) -> None:
    for why in ((), ("--why", "  ")):
        output = shardpost.refused("letters", "redrive", "--apply", *why, code=2)
        assert "--apply needs --why" in output


@pytest.mark.parametrize("value", ["/nowhere", "/proc", "/proc/self/mem"])
def test_a_value_that_cannot_be_read_is_refused(value: str) -> None:
    done = CommandLineHere({}).run("letters", "redrive", "--id", "x", "--value", value)
    assert (done.returncode, done.stdout) == (2, "")
    assert value in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("rate", ["nan", "inf", "0"])
def test_a_rate_that_is_no_rate_is_refused(rate: str) -> None:
    done = CommandLineHere({}).run("letters", "discard", "--rate", rate, "--apply", "--why", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--rate" in done.stderr


def test_two_at_once_send_each_letter_once(ready: Settings) -> None:
    shardpost = CommandLine(ready.environ())
    park(ready, 40)
    arguments = ("letters", "redrive", "--apply", "--why", "x", "--rate", "40")
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: shardpost.run(*arguments), range(2)))
    assert sorted(done.returncode for done in both) in ([0, 1], [0, 0])
    assert set(seen(ready).values()) == {1}
    assert len(retries(ready)) == 40
    for done in both:
        assert done.returncode == 0 or "is already running" in done.stderr


def test_show_prints_headers_value_and_life(ready: Settings, shardpost: CommandLine) -> None:
    put(ready, [failed(ready, original(1, b"k", b"\xff"))])
    shown = shardpost.json("letters", "show", "positions-0-1")
    assert (shown["state"], shown["value"], shown["size"]) == ("waiting", "base64 /w==", 1)
    assert ["error", "ValueError: bad"] in shown["headers"]
    assert [step["state"] for step in shown["life"]] == ["waiting"]
    assert "no letter 'nobody'" in shardpost.refused("letters", "show", "nobody", code=1)
