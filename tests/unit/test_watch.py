"""The watch without its sources: real Delta tables, and what is told."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from shardpost.alerts import history, notifier
from shardpost.alerts.channels import Channel, Delivery
from shardpost.alerts.model.alert import ALERTS, EVENT, REPORTED, Condition, Firing, Message
from shardpost.alerts.model.metrics import MEASUREMENTS, METRICS, Measure
from shardpost.decisions import Kind
from shardpost.delta import storage
from shardpost.delta.storage import FORM, path_of
from shardpost.errors import ShardpostError
from shardpost.installation import Installation
from shardpost.settings import Settings
from shardpost.topics.model.finding import Severity
from shardpost.watch import watch as module
from shardpost.watch.model.conditions import (
    GIB,
    LETTERS_PARKED,
    NOT_MEASURED,
    SNAPSHOT_AGE,
    Observations,
    disk_full,
)
from shardpost.watch.watch import Sources, collect_all, open_metrics, watch_once
from tests.support import decisions
from tests.support.at_step import at_step, killing
from tests.support.command_line import CommandLineHere
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.open_metrics import metric_families

T0 = datetime(2026, 11, 23, 8, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)


class World:
    """Sources that find what a test says."""

    def __init__(self) -> None:
        self.age = 0.0
        self.parked: list[str] = []
        self.is_up = True

    @property
    def sources(self) -> Sources:
        return {"snapshot": self._snapshot, "letters": self._letters}

    def _snapshot(self, _installation: Installation, _now: datetime) -> Observations:
        found = Observations()
        found.measure("snapshot_age_seconds", self.age)
        if self.age > 100:
            found.conditions.append(SNAPSHOT_AGE.broken("", f"{self.age:g} s"))
        return found

    def _letters(self, _installation: Installation, _now: datetime) -> Observations:
        if not self.is_up:
            raise ShardpostError("Kafka is away")
        found = Observations()
        found.measure("letters", len(self.parked), state="parked")
        found.conditions += [LETTERS_PARKED.broken(one, "parked") for one in self.parked]
        return found


@pytest.fixture
def world() -> World:
    return World()


def titles(settings: Settings, world: World, now: datetime) -> list[str]:
    return [
        one.title() for one in watch_once(installed(settings), now, world.sources).notified.alerts
    ]


def test_what_changes_is_told_and_what_lasts_is_not(settings: Settings, world: World) -> None:
    assert titles(settings, world, T0) == []
    world.age = 200
    assert titles(settings, world, T0 + QUARTER) == ["firing (risk) snapshot-age"]
    assert titles(settings, world, T0 + 2 * QUARTER) == []
    world.parked = ["positions"]
    assert titles(settings, world, T0 + 3 * QUARTER) == [
        "firing (risk) letters-parked of positions"
    ]
    world.age, world.parked = 0, []
    assert sorted(titles(settings, world, T0 + 4 * QUARTER)) == [
        "resolved (risk) letters-parked of positions",
        "resolved (risk) snapshot-age",
    ]
    assert history.list_firing(installed(settings).tables) == []
    said = (settings.home / "alerts.log").read_text()
    assert said.count("firing (risk) snapshot-age") == 1
    assert "docs/runbook.md#snapshot-age" in said


def test_a_source_that_fails_is_told_and_resolves_nothing(settings: Settings, world: World) -> None:
    world.parked = ["positions"]
    assert len(titles(settings, world, T0)) == 1
    world.is_up = False
    assert titles(settings, world, T0 + QUARTER) == ["firing (risk) not-measured of letters"]
    world.is_up, world.parked = True, []
    assert sorted(titles(settings, world, T0 + 2 * QUARTER)) == [
        "resolved (risk) letters-parked of positions",
        "resolved (risk) not-measured of letters",
    ]


def test_a_source_with_a_bug_stops_no_other(settings: Settings, world: World) -> None:
    def broken(_installation: Installation, _now: datetime) -> Observations:
        raise KeyError("x")

    found = collect_all(installed(settings), T0, {"bug": broken, **world.sources})
    assert [one.text for one in found.conditions] == ["KeyError: 'x'"]
    assert found.conditions[0].rule == NOT_MEASURED.name
    assert found.unmeasured == {"bug"}
    up = {one.labels["source"]: one.value for one in found.measures if one.name == "source_up"}
    assert up == {"bug": 0, "snapshot": 1, "letters": 1}


class Channels:
    """The channels of a home, in memory; those in `down` take nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.taken: dict[str, list[str]] = {name: [] for name in names}
        self.down: set[str] = set()
        made = [Channel(name, "x://", None) for name in names]
        monkeypatch.setattr(notifier, "channels", lambda *_: made)
        monkeypatch.setattr(notifier, "send_all", self._send)

    def _send(self, messages: Mapping[Channel, Message]) -> list[Delivery]:
        for channel, message in messages.items():
            if channel.name not in self.down:
                self.taken[channel.name].append(message.title.removeprefix("Shardpost: "))
        return [Delivery(one.name, "down" if one.name in self.down else None) for one in messages]


def test_each_channel_is_told_what_it_did_not_take_and_no_other_twice(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels(monkeypatch, "1: A", "2: B")
    channels.down = {"2: B"}
    world.age = 200
    for number in range(3):
        watch_once(installed(settings), T0 + number * QUARTER, world.sources)
    assert channels.taken["1: A"] == [
        "firing (risk) snapshot-age",
        "firing (risk) alert-channel-down of 2: B",
    ]
    channels.down = set()
    watched = watch_once(installed(settings), T0 + 3 * QUARTER, world.sources)
    assert watched.notified.is_reported
    assert channels.taken["1: A"][2:] == ["resolved (risk) alert-channel-down of 2: B"]
    assert channels.taken["2: B"] == ["firing (risk) snapshot-age"]
    assert watch_once(installed(settings), T0 + 4 * QUARTER, world.sources).notified.alerts == []
    said = (settings.home / "alerts.log").read_text()
    assert said.count("firing (risk) snapshot-age") == 1
    assert "alert channel 2: B: failed: down" in said


def test_a_channel_that_is_no_longer_set_up_is_no_longer_down(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Channels(monkeypatch, "1: A", "2: B").down = {"2: B"}
    world.age = 200
    watch_once(installed(settings), T0, world.sources)
    world.age = 0
    channels = Channels(monkeypatch, "1: A")
    watch_once(installed(settings), T0 + QUARTER, world.sources)
    assert channels.taken["1: A"] == ["2 resolved"]
    assert history.list_firing(installed(settings).tables) == []


FAILED = Condition("task-failed", "d t", Severity.RISK, "d r1 t, attempt 3: x", "m", REPORTED)


def test_what_others_report_is_told_once_and_when_it_is_over(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels(monkeypatch, "1: A", "2: B")
    for number in range(12):
        other_run = replace(FAILED, text=f"d r{number} t, attempt 3: no broker at 10.0.0.{number}")
        notifier.report(installed(settings), other_run, T0 + number * QUARTER)
    watch_once(installed(settings), T0 + 12 * QUARTER, world.sources)
    notifier.report(
        installed(settings), replace(FAILED, text="d r9 t: the disk is full"), T0 + 13 * QUARTER
    )
    assert (settings.home / "alerts.log").read_text().count("attempt 3: no") == 12
    for _ in range(2):
        notifier.resolve(installed(settings), lambda one: one.key == FAILED.key, T0 + 14 * QUARTER)
    firing = "firing (risk) task-failed of d t"
    expected = [firing, firing, "resolved (risk) task-failed of d t"]  # of two causes
    assert channels.taken == {"1: A": expected, "2: B": expected}


def test_an_event_that_no_channel_took_is_told_by_the_next_watch(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels(monkeypatch, "1: A")
    channels.down = {"1: A"}
    notifier.report(installed(settings), replace(FAILED, source=EVENT), T0)
    channels.down = set()
    watch_once(installed(settings), T0 + QUARTER, world.sources)
    assert channels.taken["1: A"] == ["happened (risk) task-failed of d t"]
    same = replace(FAILED, subject="another run", source=EVENT)
    notifier.report(installed(settings), same, T0 + 2 * QUARTER)
    assert len(channels.taken["1: A"]) == 1  # says the same
    watch_once(installed(settings), T0 + 24 * HOUR, world.sources)
    assert history.list_firing(installed(settings).tables) == []
    notifier.report(installed(settings), same, T0 + 25 * HOUR)
    assert len(channels.taken["1: A"]) == 2


def test_a_reporter_that_is_killed_while_it_tells_loses_no_event(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = Channels(monkeypatch, "1: A")
    channels.down = {"1: A"}
    with killing(at_step(monkeypatch, notifier), "told"):
        notifier.report(installed(settings), replace(FAILED, source=EVENT), T0)
    channels.down = set()
    watch_once(installed(settings), T0 + QUARTER, world.sources)
    assert channels.taken["1: A"] == ["happened (risk) task-failed of d t"]


@pytest.mark.parametrize("folder", ["tables", "locks"])
def test_where_the_table_cannot_be_used_all_channels_are_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    channels = Channels(monkeypatch, "1: A")
    (settings.home / folder).touch()  # a file where a folder would be
    notifier.report(installed(settings), FAILED, T0)
    assert channels.taken["1: A"] == ["firing (risk) task-failed of d t"]
    logged = (settings.home / "alerts.log").read_text().splitlines()
    assert logged[-2].endswith("Z firing (risk) task-failed of d t")


def test_what_is_firing_is_listed_with_whom_was_told_and_can_be_silenced(
    kafka: MemoryKafka, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka.settings
    shardpost = CommandLineHere(settings.environ())
    assert shardpost("alerts", "list") == "nothing is firing\n"
    channels = Channels(monkeypatch, "1: A", "2: B")
    channels.down = {"2: B"}
    world.parked = ["positions"]
    now = datetime.now(UTC)
    watch_once(installed(settings), now - 2 * HOUR, world.sources)
    listed = {one["key"]: one for one in shardpost.json("alerts", "list")}
    assert listed.keys() == {"letters-parked:positions", "alert-channel-down:2: B"}
    assert listed["letters-parked:positions"]["told"].keys() == {"alerts.log", "1: A"}
    wrong = shardpost.run("alerts", "silence", "letters-parked", "--for", "2h", "--why", "x")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "letters-parked:positions" in wrong.stderr
    silence = ("alerts", "silence", "letters-parked:positions", "--for")
    shardpost(*silence, "2h", "--why", "we know", "--by", "anna")
    text = shardpost("alerts", "list")
    assert "letters-parked:positions  (risk) since" in text
    assert "notified: alerts.log, 1: A\n" in text
    assert text.rstrip().endswith(" UTC by anna: we know")
    [(decided, headers)] = decisions.list_all(settings)
    assert (decided.about, decided.kind) == (b"alert/letters-parked:positions", Kind.SILENCED)
    assert (decided.who, decided.why, list(headers)) == ("anna", "we know", ["until"])
    channels.down = set()
    watch_once(installed(settings), now + HOUR, world.sources)
    of_itself = "(risk) alert-channel-down of 2: B"
    assert channels.taken["2: B"] == [f"firing {of_itself}", f"resolved {of_itself}"]
    assert shardpost.run(*silence, "2y", "--why", "x").returncode == 2
    world.parked = []
    watch_once(installed(settings), now + HOUR, world.sources)
    assert channels.taken["1: A"][-1] == "resolved (risk) letters-parked of positions"
    assert channels.taken["2: B"][2:] == []


def test_a_silence_that_cannot_be_recorded_holds_and_says_so(settings: Settings) -> None:
    away = settings.model_copy(update={"bootstrap_servers": "MEMORY://nowhere:9092"})
    shardpost = CommandLineHere(away.environ())
    notifier.report(installed(settings), FAILED, datetime.now(UTC))
    silence = ("alerts", "silence", "task-failed:d t", "--for", "1h", "--why", "x", "--by", "anna")
    refused = shardpost.refused(*silence, code=1)
    assert "the decision is not on record (" in refused
    assert "): task-failed:d t is silenced; repeat it once Kafka answers" in refused
    [listed] = shardpost.json("alerts", "list")
    assert (listed["silenced_by"], listed["silenced_why"]) == ("anna", "x")


def test_the_end_of_a_silence_is_on_record_and_told(
    kafka: MemoryKafka, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, now = kafka.settings, datetime.now(UTC)
    shardpost = CommandLineHere(settings.environ())
    channels = Channels(monkeypatch, "1: A")
    world.parked = ["positions"]
    watch_once(installed(settings), now - HOUR, world.sources)
    key = "letters-parked:positions"
    shardpost("alerts", "silence", key, "--for", "2h", "--why", "we know")
    said = shardpost("alerts", "unsilence", key, "--why", "we do not")
    assert said.startswith(f"{key}: no longer silenced")
    watch_once(installed(settings), now + HOUR, world.sources)
    assert channels.taken["1: A"] == [
        f"{state} (risk) letters-parked of positions" for state in ("firing", "still firing")
    ]
    kinds = [one.kind for one, _ in decisions.list_all(settings)]
    assert kinds == [Kind.SILENCED, Kind.UNSILENCED]


def test_what_another_machine_stored_meanwhile_stays(settings: Settings) -> None:
    def firing(subject: str) -> Firing:
        return Firing(replace(FAILED, subject=subject), T0)

    gone, stays, new, of_other = map(firing, ("gone", "stays", "new", "of another"))
    history.store_firing(installed(settings).tables, [], [gone, stays], T0)
    known = history.list_firing(installed(settings).tables)
    history.store_firing(installed(settings).tables, [], [of_other], T0)
    history.store_firing(installed(settings).tables, known, [stays, new], T0)
    assert {one.condition.subject for one in history.list_firing(installed(settings).tables)} == {
        *("stays", "new", "of another")
    }


def test_a_table_of_an_earlier_release_gets_the_columns_that_it_lacks(settings: Settings) -> None:
    texts = dict.fromkeys(("rule", "subject", "text", "meaning", "source"), "x")
    old = {"run": 1, "severity": "risk", "since": T0, "told_at": T0, "ended_at": T0} | texts
    row = pa.Table.from_pylist([old])
    settings.home.mkdir(exist_ok=True)
    form = {"shardpost.form": str(FORM)}
    DeltaTable.create(
        path_of(installed(settings).tables, ALERTS),
        Schema.from_arrow(row.schema),
        configuration=form,
        raise_if_key_not_exists=False,
    )
    write_deltalake(path_of(installed(settings).tables, ALERTS), row, mode="append")
    before = history.list_firing(installed(settings).tables)
    assert [(one.condition.rule, one.since, one.told) for one in before] == [("x", T0, {})]
    after = [one.taken("1: A", T0) for one in before]
    history.store_firing(installed(settings).tables, before, after, T0)
    assert history.list_firing(installed(settings).tables) == after


@pytest.mark.parametrize("at", ["look", "history", "told"])
def test_killed_at_any_step_everything_is_told_by_the_next_run(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    world.age = 200
    with killing(at_step(monkeypatch, module, notifier), at):
        watch_once(installed(settings), T0, world.sources)
    assert titles(settings, world, T0 + QUARTER) == ["firing (risk) snapshot-age"]
    assert titles(settings, world, T0 + 2 * QUARTER) == []


def test_the_history_has_what_was_measured_and_forgets_what_is_old(
    settings: Settings, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT_FOR", timedelta(days=2))
    for number in range(8 * 6):
        history.add_measures(
            installed(settings).tables,
            [Measure("snapshot_age_seconds", number)],
            T0 + number * 3 * HOUR,
        )
    end = T0 + 8 * 6 * 3 * HOUR
    found = history.values_over(
        installed(settings).tables, "snapshot_age_seconds", end - timedelta(days=2), end
    )
    assert [value for _, value in found] == list(range(8 * 4, 8 * 6))
    assert found[0][0] == T0 + timedelta(days=4)
    every = history.values_over(installed(settings).tables, "snapshot_age_seconds", T0, end)
    assert 8 * 2 <= len(every) <= 8 * 3
    assert len(storage.opened(installed(settings).tables, MEASUREMENTS).file_uris()) < 20


def test_the_last_values_are_of_the_last_look_that_measured_their_source(
    settings: Settings,
) -> None:
    def look(number: int, is_up: bool, *offsets: int) -> None:
        place = {"group": "g", "topic": "t"}
        found = [
            Measure("read_until_offset", offset, place | {"partition": str(partition)})
            for partition, offset in enumerate(offsets)
        ]
        up = Measure("source_up", is_up, {"source": "lag"})
        history.add_measures(installed(settings).tables, [*found, up], T0 + number * QUARTER)

    def last() -> list[float]:
        found = history.last_looks(installed(settings).tables, T0 + HOUR).get("lag")
        return sorted(value for _, value in found.of("read_until_offset")) if found else []

    assert last() == []
    look(0, False)
    assert last() == []
    look(1, True, 7, 8)
    look(2, False)
    assert last() == [7, 8]
    look(3, True)
    assert last() == []


def test_a_look_by_a_clock_that_is_a_year_ahead_drops_nothing_and_is_not_the_last(
    settings: Settings,
) -> None:
    def look(number: int, at: datetime) -> None:
        up = Measure("source_up", 1, {"source": "snapshot"})
        history.add_measures(
            installed(settings).tables, [Measure("snapshot_age_seconds", number), up], at
        )

    for number in range(5):
        look(number, T0 + number * HOUR)
    look(99, T0 + timedelta(days=366))
    now = T0 + 6 * HOUR
    look(5, now)
    found = history.values_over(installed(settings).tables, "snapshot_age_seconds", T0, now)
    assert [value for _, value in found] == [0, 1, 2, 3, 4, 5]
    last = history.last_looks(installed(settings).tables, now)["snapshot"]
    assert (last.at, last.one("snapshot_age_seconds")) == (now, 5)


def test_each_source_has_its_own_last_look(settings: Settings) -> None:
    for number, up in enumerate(("runs", "letters", "runs")):
        measures = [
            Measure("source_up", float(source == up), {"source": source})
            for source in ("runs", "letters")
        ]
        measures.append(Measure("letters", number, {"state": "parked"}))
        history.add_measures(installed(settings).tables, measures, T0 + number * QUARTER)
    found = history.last_looks(installed(settings).tables, T0 + HOUR)
    assert {source: one.at for source, one in found.items()} == {
        "runs": T0 + 2 * QUARTER,
        "letters": T0 + QUARTER,
    }
    assert found["letters"].by_label("letters", "state") == {"parked": 1}
    assert history.last_looks(installed(settings).tables, T0 + history.LOOKS_WITHIN + HOUR) == {}


def test_values_over_time_are_those_of_each_look_at_its_time(settings: Settings) -> None:
    for number in range(12):
        kept = [Measure("disk_free_bytes", number % 10), Measure("snapshot_age_seconds", 3)]
        history.add_measures(installed(settings).tables, kept, T0 + number * QUARTER)
    until = T0 + 2 * HOUR
    found = history.values_over(installed(settings).tables, "disk_free_bytes", T0 + QUARTER, until)
    assert found == [(T0 + n * QUARTER, n % 10) for n in range(1, 9)]


def test_what_is_not_kept_is_in_no_history(settings: Settings) -> None:
    place = {"group": "g", "topic": "t", "partition": "0"}
    history.add_measures(
        installed(settings).tables, [Measure("time_to_loss_seconds", 7, place)], T0
    )
    assert history.values_over(installed(settings).tables, "time_to_loss_seconds", T0, T0) == []


def test_metrics_are_open_metrics() -> None:
    hostile = 'a"b\\c\nd'
    measures = [
        Measure("snapshot_age_seconds", 12.5),
        Measure("letters", 2, {"state": hostile}),
        Measure("letters", 1, {"state": "parked"}),
    ]
    text = open_metrics(measures)
    families = metric_families(text)
    assert families["shardpost_snapshot_age_seconds"].unit == "seconds"
    letters = families["shardpost_letters"]
    assert letters.type == "gauge"
    assert {(one.labels["state"], one.value) for one in letters.samples} == {
        (hostile, 2),
        ("parked", 1),
    }
    assert text.endswith("# EOF\n")


def test_a_value_has_the_labels_that_its_metric_declares() -> None:
    with pytest.raises(ValueError, match="expected labels"):
        Measure("letters", 1)


def test_the_names_of_metrics_follow_the_conventions() -> None:
    for metric in METRICS.values():
        assert metric.name.endswith(f"_{metric.unit}" if metric.unit else metric.name)
        assert metric.meaning
        assert not metric.meaning.endswith(".")


def test_the_disk_is_full_soon_by_the_rate_of_the_last_days() -> None:
    days = timedelta(days=1)
    history = [(T0, 100 * GIB), (T0 + days, 90 * GIB)]
    assert disk_full(history, T0 + 5 * days, 50 * GIB) is not None  # 10 GiB a day: five days left
    assert disk_full(history, T0 + 2 * days, 80 * GIB) is None  # eight days left
    assert disk_full(history, T0 + days / 2, 50 * GIB) is None  # too short a time
    assert disk_full([], T0, 4 * GIB) is not None
    assert disk_full([(T0, 10 * GIB)], T0 + 2 * days, 20 * GIB) is None
