"""One client is erased: its contact goes, that it was mailed stays, and it is not mailed again."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from shardpost import projection
from shardpost.decisions import Kind
from shardpost.delta import rewritten_files
from shardpost.kafka.records import TopicPartition, partition_of
from shardpost.kafka.transactions import FencedError
from shardpost.maintenance import erasure
from shardpost.settings import Settings
from shardpost.weekly_email import email_erasure as weekly_email_erasure
from shardpost.weekly_email.delivery_status import WeekStatus
from shardpost.weekly_email.frozen_weeks import FrozenWeeks
from shardpost.weekly_email.ledger_topic import Ledger
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry, erased_id
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import AUDIENCES
from shardpost.weekly_email.week_decisions import Outcome, Resolution, resolve
from shardpost.weekly_email.week_retention import close_old_weeks, erase_old_audiences
from shardpost.weekly_email.week_state import WeekState
from tests.support import decisions
from tests.support.at_step import Killed, at_step, killed, killing
from tests.support.command_line import CommandLine
from tests.support.contact_tables import erased as erased_client
from tests.support.contact_tables import on_disk
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.object_store import folder_of
from tests.support.written_weeks import CLIENTS, freeze, frozen_row, mailed_home, record

SENT, FAILED, UNKNOWN, OPEN = (IsoWeek(2026, number) for number in (44, 45, 46, 47))
WEEKS = (SENT, FAILED, UNKNOWN, OPEN)
NOW = OPEN.end + timedelta(hours=8)
WHO = "c1"
SHARD = partition_of(WHO, 2)
MODULES = (erasure, weekly_email_erasure, rewritten_files)
STEPS = (
    *(
        name.format(week)
        for week in WEEKS
        for name in (
            *("ledger {}", "write audiences/{}.frozen", "commit audiences/{}.frozen"),
            *("checkpoint audiences/{}.frozen", "remove files {}"),
        )
    ),
    "tables",
    "letters",
    "decision",
)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[MemoryKafka]:
    with mailed_home(tmp_path, WEEKS, ["c0"]) as kafka:
        states = (DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.SENDING)
        for week, state in zip(WEEKS, states, strict=False):
            record(kafka.settings, week, WHO, state, f"550 no such user {WHO}@x.example")
        yield kafka


erased = partial(erased_client, client=WHO, now=NOW)


def state(settings: Settings, week: IsoWeek, client: str = WHO) -> DeliveryState | None:
    with closing(Ledger(installed(settings), week, partition_of(client, 2))) as ledger:
        return ledger.open().states([client])[0]


def in_ledger(kafka: MemoryKafka) -> str:
    """Return what the ledger's topic has once it was compacted."""
    partition = TopicPartition(kafka.settings.topic("weekly-emails"), SHARD)
    kafka.broker.log(partition).compact()
    last = {record.key: record.value for record in kafka.committed(partition)}
    return str({key: value for key, value in last.items() if value is not None})


def is_erased(kafka: MemoryKafka) -> bool:
    at = kafka.settings
    assert f"'{WHO}'" not in on_disk(at, AUDIENCES)
    assert f"{WHO}@" not in on_disk(at, AUDIENCES)
    assert f"/{WHO}'" not in in_ledger(kafka)
    assert f"{WHO}@" not in in_ledger(kafka)
    assert [state(at, week) for week in WEEKS] == [
        DeliveryState.SENT,
        DeliveryState.FAILED,
        DeliveryState.UNKNOWN,
        DeliveryState.SUPPRESSED,
    ]
    for week in WEEKS:  # the others are as they were
        frozen = frozen_row(at, week)
        found = [
            name
            for shard in (0, 1)
            for name in FrozenWeeks(installed(at).tables).clients(frozen, shard)
        ]
        assert sorted(found) == ["c0", "c2", "c4"]
        member = FrozenWeeks(installed(at).tables).member(frozen, "c2")
        assert member is not None
        assert member["email"] == "c2@x.example"
        assert len(member["positions"]) == 1
        assert state(at, week, "c0") is DeliveryState.SENT
        assert state(at, week, "c2") is None
        assert WeekState(installed(at), week).why_incomplete() is None
    return True


def test_its_contact_goes_and_that_it_was_mailed_stays(kafka: MemoryKafka) -> None:
    result = erased(kafka.settings)
    weeks = list(map(str, WEEKS))
    assert (result.audiences, result.ledger, result.postponed) == (weeks, weeks, {})
    assert is_erased(kafka)
    again = erased(kafka.settings)
    assert (again.audiences, again.ledger) == ([], [])
    assert is_erased(kafka)


def test_what_this_machine_has_kept_of_the_ledger_goes(at: Settings) -> None:
    def kept() -> bool:
        files = (at.home / projection.FOLDER).rglob("*.sqlite")
        return any(f"{WHO}@x.example".encode() in file.read_bytes() for file in files)

    WeekStatus(WeekState(installed(at), FAILED), frozen_row(at, FAILED), 2).by_shard([SHARD])
    assert kept()
    erased(at)
    assert not kept()


def test_a_record_of_a_week_that_there_never_was_does_not_stop_it(at: Settings) -> None:
    record(at, IsoWeek(2026, 99), WHO, DeliveryState.SENT)
    assert erased(at).ledger == list(map(str, WEEKS))


def test_what_a_killed_freeze_left_of_a_week_that_nobody_froze_since_goes(at: Settings) -> None:
    week = OPEN.next
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FrozenWeeks, "commit", lambda *_: killed())
        with pytest.raises(Killed):
            freeze(at, week, [WHO, "c2"], NOW)
    assert str(week) in erased(at, dry_run=True).audiences
    assert f"{WHO}@" in on_disk(at, AUDIENCES)
    result = erased(at)
    assert result.audiences == [*map(str, WEEKS), str(week)]
    assert result.is_complete
    assert f"{WHO}@" not in on_disk(at, AUDIENCES)
    assert str(week) not in "".join(path.name for path in folder_of(at, AUDIENCES).iterdir())
    assert erased(at).audiences == []
    assert freeze(at, week, ["c2"], NOW).recipients == 1


def test_it_is_on_record_under_its_hash(at: Settings) -> None:
    erased(at)
    [(decision, headers)] = list(decisions.list_all(at))
    assert decision.about == erased_id(WHO).encode()
    found = (decision.kind, decision.who, decision.when, decision.why)
    assert found == (Kind.ERASED, "anna", NOW, "it asked for it")
    assert headers["audiences"] == b"2026-W44,2026-W45,2026-W46,2026-W47"


def test_a_dry_run_changes_nothing(kafka: MemoryKafka) -> None:
    before = on_disk(kafka.settings, AUDIENCES), in_ledger(kafka)
    result = erased(kafka.settings, dry_run=True)
    assert (len(result.audiences), len(result.ledger)) == (4, 3)
    assert (on_disk(kafka.settings, AUDIENCES), in_ledger(kafka)) == before
    assert list(decisions.list_all(kafka.settings)) == []


@pytest.mark.parametrize("killed_at", some(STEPS, 2))
def test_killed_at_any_step_and_run_again_it_is_erased(
    kafka: MemoryKafka, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    with killing(at_step(monkeypatch, *MODULES), killed_at):
        erased(kafka.settings)
    for week in WEEKS:  # what is kept can be read, with the client or without
        frozen = frozen_row(kafka.settings, week)
        assert FrozenWeeks(installed(kafka.settings).tables).member(frozen, "c2") is not None
    assert state(kafka.settings, SENT) is DeliveryState.SENT
    erased(kafka.settings)
    assert is_erased(kafka)
    assert len(list(decisions.list_all(kafka.settings))) == 1


def test_while_a_week_is_mailed_nothing_of_it_is_erased_nor_on_record(kafka: MemoryKafka) -> None:
    at = kafka.settings
    with WeekState(installed(at), UNKNOWN).locked([0]):
        result = erased(at)
        assert FrozenWeeks(installed(at).tables).member(frozen_row(at, UNKNOWN), WHO) is not None
        assert state(at, UNKNOWN) is DeliveryState.SENDING
    assert "is already running" in result.postponed[str(UNKNOWN)]
    assert list(decisions.list_all(at)) == []
    erased(at)
    assert is_erased(kafka)


def test_a_sender_that_began_before_can_commit_nothing_any_more(kafka: MemoryKafka) -> None:
    sender = Ledger(installed(kafka.settings), OPEN, SHARD)
    assert sender.open().states([WHO]) == [None]
    erased(kafka.settings)
    with pytest.raises(FencedError):
        sender.write([LedgerEntry(WHO, DeliveryState.SENDING)])
    assert is_erased(kafka)


def test_tables_of_an_older_backup_do_not_mail_it_again(at: Settings, tmp_path: Path) -> None:
    shutil.copytree(at.tables_root, tmp_path / "backup")
    erased(at)
    shutil.rmtree(at.tables_root)
    shutil.copytree(tmp_path / "backup", at.tables_root)
    assert state(at, SENT) is DeliveryState.SENT
    assert state(at, OPEN) is DeliveryState.SUPPRESSED
    assert erased(at).audiences == list(map(str, WEEKS))
    assert state(at, SENT) is DeliveryState.SENT


def test_an_unknown_delivery_is_decided_by_the_clients_own_id(at: Settings) -> None:
    erased(at)
    resolve(
        installed(at), Resolution(UNKNOWN, (WHO,), Outcome.SENT, "anna", "by the server's log", NOW)
    )
    assert state(at, UNKNOWN) is DeliveryState.SENT


def test_old_weeks_with_erased_clients_are_erased_and_closed_like_others(at: Settings) -> None:
    erased(at)
    later = NOW + timedelta(days=800)
    last = IsoWeek.last_ended(later)
    for week in (last.previous, last):
        freeze(at, week, CLIENTS, week.end)
    assert erase_old_audiences(installed(at), later).weeks == list(map(str, WEEKS))
    assert close_old_weeks(installed(at), later).weeks == list(map(str, WEEKS))
    assert erased(at).audiences == [str(last.previous), str(last)]


def test_the_command_says_what_goes_what_stays_and_what_others_must_do(
    shardpost: CommandLine,
) -> None:
    given = ["erase", WHO, "--why", "it asked for it", "--by", "anna"]
    assert "would be erased from audiences" in shardpost(*given, "--dry-run")
    said = shardpost(*given)
    assert f"{WHO}: from now on sha256:" in said
    assert "erased from audiences (name, address, holdings): 4 weeks: 2026-W44" in said
    assert "stays: its positions" in said
    assert "topic clients: its owner writes a tombstone (key c1, null value)" in said
    said = shardpost("emails", "--week", str(SENT), "--client", WHO)
    assert f"{WHO} got the e-mail of {SENT}" in said
    shardpost("erase", WHO, "--why", " ", code=2)


def test_the_command_ends_with_1_while_a_week_is_mailed(
    at: Settings, shardpost: CommandLine
) -> None:
    with WeekState(installed(at), OPEN).locked([0]):
        code, out, err = shardpost.answer("erase", WHO, "--why", "x", "--json")
    assert (code, json.loads(out)["complete"]) == (1, False)
    assert f"not erased: {OPEN}; run again" in err
