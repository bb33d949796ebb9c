"""The job weekly_email: who is frozen, who is mailed, and what a run refuses."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shardpost.delta import snapshots
from shardpost.delta.storage import path_of
from shardpost.errors import NEEDS_ATTENTION, ShardpostError
from shardpost.holders.model.who_holds import position_sort_key
from shardpost.kafka.records import partition_of
from shardpost.locks.locks import exclusive
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email import dry_runs, send_plan, week_decisions
from shardpost.weekly_email.delivery_status import find_late
from shardpost.weekly_email.dry_runs import DryRunList
from shardpost.weekly_email.email_job import EmailRequest
from shardpost.weekly_email.email_run import prepare
from shardpost.weekly_email.email_run import run as weekly_email
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_report import (
    ShardStatus,
    late_document,
    status_document,
)
from shardpost.weekly_email.model.week_tables import FROZEN_WEEKS, WeekPausedError
from shardpost.weekly_email.spark import audience_freeze
from shardpost.weekly_email.spark.audience_freeze import freeze
from shardpost.weekly_email.week_state import WeekState
from tests.support.at_step import at_step
from tests.support.email_requests import email_request
from tests.support.installed import installed
from tests.support.mail_server import MailServer
from tests.support.recreated_topic import recreate_topic
from tests.support.week_tables import World, counts_by_shard
from tests.support.written_weeks import freeze as freeze_by_hand

pytestmark = pytest.mark.usefixtures("spark")

WEEK = IsoWeek(2026, 45)
IN_TIME = WEEK.end - timedelta(hours=1)
TOO_LATE = WEEK.end + timedelta(hours=1)
NOW = WEEK.end + timedelta(hours=8)


@pytest.fixture
def world(settings: Settings, server: MailServer) -> World:
    apply_topics(installed(settings))
    quick = {"smtp_port": server.port, "mail_attempts": 2}
    return World(settings.model_copy(update=quick))


def request(*arguments: str, now: datetime = NOW) -> EmailRequest:
    return email_request(WEEK, *arguments, now=now)


def run(world: World, *arguments: str, now: datetime = NOW) -> tuple[int, dict[str, Any]]:
    return weekly_email(request(*arguments, now=now), installed(world.settings))


def total(result: dict[str, Any], state: str) -> int:
    return sum(shard[state] for shard in result["shards"])


def one_client(world: World) -> None:
    world.position("1", "client1")
    world.client("client1")
    world.commit(looked_at=NOW)


def story(world: World) -> None:
    world.position("10", "client1")
    world.position("9", "client1", exchange="NYSE")
    world.position("x", "client1")
    world.position("2", "client1", exchange="LON")
    world.position("3", "client2", at=IN_TIME)
    world.position("4", "client3", exchange="LON")
    world.position("5", "client4", at=TOO_LATE)
    world.position("6", "client5")
    world.close("6", at=TOO_LATE)
    world.position("7", "client6")
    world.position("8", "client7")
    world.position("11", "nobody")
    for name in ("client1", "client2", "client3", "client4", "client5"):
        world.client(name)
    world.client("client6", subscribed=False)
    world.client("client7", email="no address")


def test_everybody_who_held_at_the_weeks_end_gets_one_as_the_dry_run_says_of_everybody(
    world: World, server: MailServer
) -> None:
    story(world)
    world.commit(looked_at=NOW)
    code, listed = run(world, "--dry-run")
    assert code == 0
    assert FrozenWeeks(installed(world.settings).tables).find(WEEK) is None
    assert [(to["client"], to["email"], to["positions"]) for to in listed["recipients"]] == [
        (client, f"{client}@x.example", positions)
        for client, positions in sorted(
            {"client1": ["9", "10", "x"], "client2": ["3"], "client5": ["6"]}.items(),
            key=lambda item: (partition_of(item[0], 4), item[0]),
        )
    ]
    why = {one["client"]: one["reason"] for one in listed["failed"]}
    assert why.pop("client7").startswith("unusable e-mail address 'no address'")
    assert why == {"nobody": "no contact: the client has no record in `clients`"}
    assert [(one["client"], one["reason"]) for one in listed["suppressed"]] == [
        ("client6", "not subscribed")
    ]
    assert listed["unchanged"] == []
    code, result = run(world)
    assert (code, result["week"], result["snapshot"], result["unknown"]) == (0, str(WEEK), 1, [])
    assert [total(result, s) for s in ("sent", "failed", "suppressed", "open")] == [3, 2, 1, 0]
    counts = listed["counts"]
    assert [counts[name] for name in ("recipients", "failed", "suppressed")] == [3, 2, 1]
    assert run(world) == (code, result)  # nothing is left to do
    assert server.taken == {to["email"]: 1 for to in listed["recipients"]}
    assert b"x         AAPL       100  NASDAQ" in server.contents["client1@x.example"]
    again = run(world, "--dry-run")[1]
    assert again["recipients"] == []
    assert again["counts"] == dict.fromkeys(counts, 0) | {"unchanged": 6}


@pytest.mark.one_of("freezes")
def test_an_audience_is_frozen_once_whatever_later_snapshots_say(
    world: World, server: MailServer
) -> None:
    world.position("1", "client1")
    world.position("2", "client2")
    world.position("3", "client3")
    for name in ("client1", "client2", "client3"):
        world.client(name)
    world.commit(looked_at=NOW)
    code, frozen = run(world, "--freeze-only")
    assert (code, frozen["shards"], frozen["recipients"], frozen["groups"]) == (0, 4, 3, ["0-3"])
    world.close("1", at=IN_TIME)
    world.client("client1", email="other@x.example")
    world.client("client2", subscribed=False)
    del world.clients["client3"]
    world.position("4", "client4", at=IN_TIME)
    world.client("client4")
    world.commit(looked_at=NOW)
    code, result = run(world)
    assert (code, result["snapshot"]) == (0, 1)
    assert (total(result, "sent"), total(result, "suppressed")) == (1, 2)
    assert server.taken == {"client1@x.example": 1}
    week = FrozenWeeks(installed(world.settings).tables).find(WEEK)
    assert week is not None
    assert find_late(installed(world.settings), week) == late_document(["client4"], ["client1"])


@pytest.mark.one_of("freezes")
def test_a_freeze_that_crashed_is_repeated(world: World, server: MailServer) -> None:
    one_client(world)
    run(world, "--freeze-only")
    # As a run that was killed leaves it: the audience is written, and its week is not frozen.
    shutil.rmtree(path_of(installed(world.settings).tables, FROZEN_WEEKS))
    world.position("2", "client2")
    world.client("client2")
    world.commit(looked_at=NOW)
    code, frozen = run(world, "--freeze-only")
    assert (code, frozen["snapshot"], frozen["recipients"]) == (0, 2, 2)
    run(world)
    assert server.taken == {"client1@x.example": 1, "client2@x.example": 1}


@pytest.mark.one_of("freezes")
def test_a_freeze_that_waited_for_another_takes_what_that_froze(world: World) -> None:
    one_client(world)
    at = installed(world.settings)
    first = prepare(at, request("--freeze-only"), WeekState(at, WEEK))
    waited = replace(first, frozen=None)  # as it was prepared before the first one ended
    later = request("--freeze-only", now=NOW + timedelta(hours=1))
    assert freeze(at, later, waited).frozen == first.frozen


def test_a_freeze_changes_nothing_of_what_another_one_froze_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_client(world)

    # As one that took the lock over on a store, after the audience was written.
    at_step(monkeypatch, audience_freeze)(
        "audience written", lambda: freeze_by_hand(world.settings, WEEK, ["c1", "c2"], NOW)
    )
    with pytest.raises(ShardpostError, match="another run froze a week"):
        run(world, "--freeze-only")
    weeks = FrozenWeeks(installed(world.settings).tables)
    [frozen] = weeks.list_all()
    found = [weeks.clients(frozen, shard) for shard in range(world.settings.partitions)]
    assert sorted(client for clients in found for client in clients) == ["c1", "c2"]


@pytest.mark.one_of("freezes")
def test_a_week_is_frozen_of_the_tables_that_are_in_use_when_it_is_frozen(
    world: World, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.position("1", "client1")
    world.position("2", "client2", exchange="LON")
    world.position("3", "client3", exchange="PAR")
    for name in ("client1", "client2", "client3"):
        world.client(name)
    world.commit(looked_at=NOW)

    @contextmanager
    def after_a_swap(*names: Any, wait: float) -> Iterator[None]:
        world.swap("FR")  # while the freeze waits for the lock
        with exclusive(*names, wait=wait):
            yield

    monkeypatch.setattr(audience_freeze, "exclusive", after_a_swap)
    at_step(monkeypatch, audience_freeze)("audience written", lambda: world.swap("GB"))
    code, frozen = run(world, "--freeze-only")
    assert (code, frozen["snapshot"], frozen["recipients"]) == (0, 3, 1)
    week = FrozenWeeks(installed(world.settings).tables).find(WEEK)
    assert week is not None
    assert (week.rule.country, week.snapshot) == ("GB", 3)
    run(world)
    assert server.taken == {"client2@x.example": 1}
    assert b"LON" in server.contents["client2@x.example"]


def test_positions_stand_in_the_contracts_order(world: World) -> None:
    keys = ["10", "9", "009", "09", "a", "B", "0", "00", "1a", "²", "٣", "10" * 12, "1\n", "-1"]
    for key in keys:
        world.position(key, "client1")
    world.client("client1")
    world.commit(looked_at=NOW)
    found = run(world, "--dry-run")[1]["recipients"][0]["positions"]
    assert found == sorted(keys, key=position_sort_key)


def test_only_the_shards_that_are_named_are_mailed(world: World, server: MailServer) -> None:
    clients = [f"client{n}" for n in range(12)]
    for n, client in enumerate(clients):
        world.position(str(n), client)
        world.client(client)
    world.commit(looked_at=NOW)
    run(world, "--shards", "1,3")
    chosen = {c for c in clients if partition_of(c, 4) in (1, 3)}
    assert server.taken == {f"{client}@x.example": 1 for client in chosen}
    left = counts_by_shard(world.settings, WEEK, NOW)
    assert sum(shard.open for shard in left) == 12 - len(chosen)
    run(world)
    assert server.taken == {f"{client}@x.example": 1 for client in clients}


@pytest.mark.one_of("weeks in trouble")
def test_early_mails_a_running_week_as_of_now_and_freezes_nothing(
    world: World, server: MailServer
) -> None:
    world.position("1", "client1")
    world.position("2", "client2", at=IN_TIME)
    world.client("client1")
    world.client("client2")
    early = WEEK.start + timedelta(days=1)
    world.commit(looked_at=early)
    with pytest.raises(ShardpostError, match="has not ended"):
        run(world, now=early)
    assert run(world, "--early", now=early)[0] == 0
    assert server.taken == {"client1@x.example": 1}
    assert FrozenWeeks(installed(world.settings).tables).find(WEEK) is None
    seen = replace(snapshots.current(installed(world.settings).tables), looked_at=NOW)
    snapshots.update_looked_at(installed(world.settings).tables, seen)
    assert run(world)[0] == 0
    assert server.taken == {"client1@x.example": 1, "client2@x.example": 1}


def test_who_unsubscribes_while_a_run_mails_is_suppressed(
    world: World, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_plan, "INTERVAL_SECONDS", 1e-9)
    first, second = "client1", "client2"
    assert partition_of(first, 4) == partition_of(second, 4)
    world.settings = world.settings.model_copy(update={"mail_connections": 1})
    for client in (first, second):
        world.position(client, client)
        world.client(client)
    world.commit(looked_at=NOW)

    who: list[str] = []

    def unsubscribe(stage: str, to: str) -> None:  # the other one, whoever comes first
        if stage == "end" and not who:
            who.append(second if to == f"{first}@x.example" else first)
            world.client(who[0], subscribed=False, snapshot=2)
            world.commit(looked_at=NOW)

    server.script = unsubscribe
    code, result = run(world)
    assert (code, total(result, "sent"), total(result, "suppressed")) == (0, 1, 1)
    assert [*server.taken.values()] == [1]
    assert f"{who[0]}@x.example" not in server.taken


def test_a_ledger_that_was_recreated_after_mails_were_sent_mails_nobody_again(
    world: World, server: MailServer
) -> None:
    one_client(world)
    assert run(world)[0] == 0
    topic = world.settings.topic("weekly-emails")
    recreate_topic(world.settings, topic, 4, cleanup_policy="compact")
    for more in ((), ("--dry-run",), ("--freeze-only",), ("--again", "FAILED")):
        with pytest.raises(ShardpostError, match=f"{topic}.* deleted and created again"):
            run(world, *more)
    assert server.taken == {"client1@x.example": 1}


def test_an_empty_audience_is_frozen_only_if_that_is_accepted(
    world: World, server: MailServer
) -> None:
    world.commit(looked_at=NOW)
    for refused in ((), ("--freeze-only",)):
        with pytest.raises(ShardpostError, match="no client held stock that counts at its end"):
            run(world, *refused)
    assert FrozenWeeks(installed(world.settings).tables).list_all() == []
    code, result = run(world, "--accept-drop")
    assert (code, total(result, "sent")) == (0, 0)
    found = FrozenWeeks(installed(world.settings).tables).find(WEEK)
    assert found is not None
    assert found.recipients == 0
    world.position("1", "client1", at=IN_TIME)
    world.client("client1")
    world.commit(looked_at=NOW)
    run(world)
    assert not server.taken


@pytest.mark.one_of("weeks in trouble")
def test_a_half_mailed_week_goes_on_when_its_scheduled_run_is_cleared_days_later(
    world: World, server: MailServer
) -> None:
    for n in range(12):
        world.position(str(n), f"client{n}")
        world.client(f"client{n}")
    world.commit(looked_at=NOW, committed_at=WEEK.start)
    scheduled = ("--scheduled",)
    good = ("client0@x.example", "client1@x.example")
    server.script = lambda at, to: "550 broken" if at == "RCPT" and to not in good else None
    code, result = run(world, *scheduled)
    assert (code, total(result, "failed"), total(result, "open")) == (1, 0, 10)
    server.script = lambda _at, _to: None
    late = WEEK.end + timedelta(days=4)
    world.commit(looked_at=late, committed_at=WEEK.start)
    assert run(world, *scheduled, "--freeze-only", now=late)[1]["skipped"] is None
    code, result = run(world, *scheduled, now=late)
    assert (code, total(result, "sent"), total(result, "open")) == (0, 12, 0)
    assert set(server.taken.values()) == {1}


@pytest.mark.one_of("weeks in trouble")
def test_a_server_that_refuses_the_few_clients_of_every_shard_fails_none_of_them(
    world: World, server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for n in range(12):
        world.position(str(n), f"client{n}")
        world.client(f"client{n}")
    world.commit(looked_at=NOW)
    server.script = lambda at, _to: "550 broken" if at == "RCPT" else None
    code, result = run(world)
    assert (code, total(result, "failed"), total(result, "open")) == (1, 0, 12)
    assert "550 broken" in capfd.readouterr().err
    bad = {"client3@x.example", "client4@x.example"}
    server.script = lambda at, to: "550 no such user" if at == "RCPT" and to in bad else None
    code, result = run(world)
    assert (code, total(result, "failed"), total(result, "sent")) == (0, 2, 10)


@pytest.mark.one_of("weeks in trouble")
def test_too_many_failed_need_attention_and_mended_addresses_are_mailed_in_the_same_week(
    world: World, server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for n in range(10):
        world.position(str(n), f"client{n}")
        world.client(f"client{n}", email="nonsense" if n < 6 else f"client{n}@x.example")
    world.commit(looked_at=NOW)
    assert run(world)[0] == 3
    assert "6 of 10 clients failed" in capfd.readouterr().err
    for n in range(6):
        world.client(f"client{n}", name=f"Mended {n}", email=f"mended{n}@x.example")
    world.commit(looked_at=NOW)
    assert run(world)[0] == 3
    listed = run(world, "--dry-run", "--again", "FAILED")[1]["recipients"]
    mended = {f"mended{n}@x.example" for n in range(6)}
    assert {to["email"] for to in listed} == mended
    code, result = run(world, "--again", "FAILED")
    assert (code, total(result, "failed"), total(result, "sent")) == (0, 0, 10)
    assert set(server.taken.values()) == {1}
    assert mended < set(server.taken)
    assert b"Hello Mended 3" in server.contents["mended3@x.example"]


@pytest.mark.one_of("weeks in trouble")
def test_a_week_that_is_paused_while_it_is_mailed_needs_attention_and_goes_on_later(
    world: World, server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(24):
        world.position(str(number), f"client{number}")
        world.client(f"client{number}")
    world.commit(looked_at=NOW)
    slow = replace(world, settings=world.settings.model_copy(update={"mail_rate": 4.0}))
    once = threading.Lock()

    def pause_at_the_first(stage: str, _recipient: str) -> None:
        if stage == "end" and once.acquire(blocking=False):
            week_decisions.pause(installed(world.settings), WEEK, "bob", "a wrong price", NOW)

    server.script = pause_at_the_first
    code, result = run(slow)
    assert (code, result["paused"]["who"], result["unknown"]) == (NEEDS_ATTENTION, "bob", [])
    assert total(result, "sent") + total(result, "open") == 24
    assert total(result, "open") > 0
    assert "was paused on" in capfd.readouterr().err
    with pytest.raises(WeekPausedError, match="a wrong price"):
        run(world)
    week_decisions.resume(installed(world.settings), WEEK, "bob", "the price is right", NOW)
    code, result = run(world)
    assert (code, total(result, "sent"), "paused" in result) == (0, 24, False)
    assert set(server.taken.values()) == {1}


def test_a_dry_run_can_leave_its_lists_in_a_folder_or_as_text_in_a_file(
    world: World, tmp_path: Path
) -> None:
    one_client(world)
    counts = dict.fromkeys(("suppressed", "failed", "unchanged"), 0)
    listed = {"week": str(WEEK), "snapshot": 1}
    listed |= {"counts": {"recipients": 1, **counts}, "unknown_exchanges": {}}
    assert run(world, "--dry-run", "--recipients", str(tmp_path)) == (0, listed)
    lines = dry_runs.lines(tmp_path, DryRunList.RECIPIENTS)
    assert [line["client"] for line in lines] == ["client1"]
    assert run(world, "--dry-run", "--recipients", str(tmp_path / "text")) == (0, listed)
    assert (tmp_path / "text").read_text().splitlines() == [
        f"client1 <client1@x.example>, shard {partition_of('client1', 4)}: 1",
        "1 would get an e-mail; nothing was sent",
    ]


@pytest.mark.one_of("weeks in trouble")
def test_both_commands_count_one_week_in_one_way_early_frozen_and_both(
    world: World, server: MailServer, capfd: pytest.CaptureFixture[str]
) -> None:
    early = WEEK.start + timedelta(days=1)
    for client in ("client1", "client2", "client3"):
        world.position(client, client)
    world.client("client1")
    world.client("client2", email="no address")
    world.commit(looked_at=early)
    code, result = run(world, "--early", now=early)
    assert (code, total(result, "sent"), total(result, "failed"), total(result, "open")) == (
        0,
        1,
        0,
        2,
    )
    assert result["without_contact"] == 2
    assert counted(counts_by_shard(world.settings, WEEK, early)) == result["shards"]

    world.client("client3")
    world.position("4", "client4", at=IN_TIME)
    world.client("client4")
    world.commit(looked_at=NOW)
    server.script = lambda at, to: "drop" if at == "DATA" and "client4" in to else None
    code, result = run(world)
    assert [total(result, s) for s in ("sent", "failed", "open")] == [2, 1, 1]
    assert (code, result["without_contact"]) == (1, 0)
    assert f"shardpost: shard {partition_of('client4', 4)}: " in capfd.readouterr().err
    assert counted(counts_by_shard(world.settings, WEEK, NOW)) == result["shards"]
    server.script = lambda _at, _to: None
    assert run(world)[0] == 0
    assert server.taken == {f"client{n}@x.example": 1 for n in (1, 3, 4)}


def counted(shards: list[ShardStatus]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status_document(WEEK, shards)["shards"]
    return found
