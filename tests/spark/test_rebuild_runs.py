"""Rebuilds as commands, beside other runs and mails, and killed at their steps."""

import json
import time
from datetime import UTC, datetime

import pytest

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders.compaction_job import COMPACT_POSITIONS
from shardpost.locks.locks import LockedError
from shardpost.rebuilds import registry
from shardpost.rebuilds.model.rebuild import Standing
from shardpost.rebuilds.rebuild_job import REBUILD_TABLES, Action, tables_of
from shardpost.rebuilds.registry import compare_open
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.values.holding_rule import Rule
from shardpost.weekly_email.email_job import WEEKLY_EMAIL, EmailRequest, Mode
from shardpost.weekly_email.email_run import run as weekly_email
from shardpost.weekly_email.model.week import IsoWeek
from tests.support import decisions
from tests.support.command_line import CommandLine
from tests.support.compacting import agree, held, starter
from tests.support.how_far import drawn
from tests.support.installed import installed
from tests.support.job_process import Job, kill_at, paused, wait_for
from tests.support.jobs_here import CommandsHere
from tests.support.mail_server import mail_server
from tests.support.rebuilding import compacted, request, rollback, start, swap
from tests.support.reference import Fold, Raw, closed, exchange, position, produce, published

pytestmark = [
    pytest.mark.also_on_store,
    pytest.mark.usefixtures("spark"),  # what is not killed runs in this process
]

GB = request(Action.START, country="GB", tables=tables_of(None))
BUILDING = [
    *("rebuild position_events part 1", "rebuilt position_events part 1"),
    *("rebuilt rejected records of positions", "rebuild positions", "rebuilt positions"),
    *("rebuilt share_holders", "built"),
]
TOPPING_UP = ["top-up position_events", "share_holders", "top-up fold", "topped up"]
BEFORE_SWAP = [
    *("publish the rest", "holders that differ", "newly rejected"),
    *("leave tables", "commit snapshot"),
]
COMMITTED = ["swapped", "on record", "publish the difference"]
BEFORE_ROLLBACK = ["leave tables", "commit snapshot"]
WEEK = IsoWeek.last_ended(datetime.now(UTC))
BEFORE_MS = int(WEEK.end.timestamp() * 1000) - 3_600_000


def batch(number: int) -> list[Raw]:
    """Return records that change something of everything."""
    return [
        *(
            position(str(n), f"client{(n + number) % 4}", ("NASDAQ", "LON")[n % 2])
            for n in range(8)
        ),
        closed(str(number % 8)),
        exchange("PAR", "US" if number % 2 else "GB"),
        position(f"new{number}", "client1", "PAR"),
        Raw("positions", b"bad", b"{"),
        Raw("clients", b"client1", b'{"Client":"client1","Subscribed":true}'),
    ]


@pytest.fixture
def filled(settings: Settings) -> tuple[Settings, Fold]:
    """Give settings with a first snapshot, and the fold of its records."""
    apply_topics(installed(settings))
    fold = Fold()
    fold.add(starter())
    add(settings, fold, 0)
    return settings, fold


def send(settings: Settings, fold: Fold, number: int) -> None:
    produce(settings, batch(number))
    fold.add(batch(number))


def add(settings: Settings, fold: Fold, number: int) -> None:
    send(settings, fold, number)
    compacted(settings)


@pytest.mark.one_of("kills of what makes tables")
@pytest.mark.timeout(1800)
def test_killed_at_any_step_of_the_build_it_goes_on_where_it_was(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    done = 0
    for number, step in enumerate(drawn(BUILDING, every=2), 1):
        kill_at(settings, REBUILD_TABLES, GB, pause_at=step)
        assert held(settings) == fold.holders("US")
        rebuild = registry.require_current(installed(settings).tables)
        assert rebuild.number == 2
        assert rebuild.progress.units >= done
        done = rebuild.progress.units
        add(settings, fold, number)
    start(settings, "GB")
    assert registry.require_current(installed(settings).tables).progress.units == 3 + 3 + 3 + 1
    found = compare_open(installed(settings).tables, installed(settings).kafka, datetime.now(UTC))
    assert found.positions.different == 0
    assert found.positions.equal == len(fold.positions)
    swap(settings)
    agree(settings, fold, "GB")


@pytest.mark.one_of("kills of what makes tables")
@pytest.mark.timeout(1800)
def test_killed_at_any_step_of_a_top_up_the_next_one_does_it(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    start(settings, "GB")
    for number, step in enumerate(drawn(TOPPING_UP, every=2), 1):
        before = registry.require_current(installed(settings).tables).candidate
        add(settings, fold, number)
        number_now = snapshots.current(installed(settings).tables).number
        assert registry.require_current(installed(settings).tables).candidate.number == number_now
        send(settings, fold, number + 10)
        where = {"share_holders": 2}.get(step, 1)  # the compaction has a step of that name, too
        kill_at(settings, COMPACT_POSITIONS, pause_anywhere_at=step, nth_time=where)
        agree(settings, fold, "US")
        assert before.number < number_now
        assert registry.require_current(installed(settings).tables).candidate.number == number_now
    swap(settings)
    agree(settings, fold, "GB")


@pytest.mark.one_of("kills of what makes tables")
@pytest.mark.timeout(1800)
def test_killed_at_any_step_of_swap_and_rollback_all_is_old_or_all_new(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    start(settings, "GB")
    is_new = False
    done: list[tuple[bytes, bytes]] = []
    steps = [*drawn(BEFORE_SWAP, every=1), *drawn(COMMITTED), *drawn(BEFORE_ROLLBACK, every=1)]
    for number, step in enumerate(steps, 1):
        action = Action.ROLLBACK if is_new else Action.SWAP
        kill_at(settings, REBUILD_TABLES, request(action), pause_at=step)
        if step in COMMITTED:
            is_new ^= True
            done.append((str(action).encode(), str(rebuilt_in(settings)).encode()))
        country = "GB" if is_new else "US"
        assert snapshots.current(installed(settings).tables).rule == Rule(country)
        assert held(settings) == fold.holders(country)
        standing = registry.require_current(installed(settings).tables).standing(
            snapshots.current(installed(settings).tables)
        )
        assert (standing is Standing.IN_USE) is is_new
        add(settings, fold, number)
        agree(settings, fold, country)
    assert is_new
    rollback(settings)
    done.append((b"rollback", str(rebuilt_in(settings)).encode()))
    agree(settings, fold, "US")
    recorded = [headers for _, headers in decisions.list_all(settings)]
    assert sorted((one["action"], one["snapshot"]) for one in recorded) == sorted(done)


def rebuilt_in(settings: Settings) -> int | None:
    return snapshots.current(installed(settings).tables).rebuilt_in


@pytest.mark.one_of("kills of what makes tables")
def test_a_swap_waits_for_a_compaction_and_a_second_swap_changes_nothing(
    filled: tuple[Settings, Fold],
) -> None:
    settings, fold = filled
    if settings.is_on_store:
        pytest.skip("a halted run loses its lock there: test_locks_on_a_store")
    impatient = settings.model_copy(update={"lock_wait": 0.5})
    start(settings, "GB")
    send(settings, fold, 1)
    with paused(settings, COMPACT_POSITIONS, pause_at="positions table") as running:
        with pytest.raises(LockedError, match="compact_positions is already running"):
            swap(impatient)
        assert published(settings)
        running.resume()
        assert running.wait() == 0, running.log.read_text()
    agree(settings, fold, "US")
    with paused(settings, REBUILD_TABLES, request(Action.SWAP), pause_at="swapped") as first:
        with pytest.raises(LockedError, match="is already running"):
            swap(impatient)
        first.resume()
        assert first.wait() == 0, first.log.read_text()
    swap(settings)
    agree(settings, fold, "GB")
    assert snapshots.current(installed(settings).tables).rebuilt_in == 3
    with pytest.raises(ShardpostError, match="is in use"):
        start(settings, "GB")


@pytest.fixture
def shardpost(settings: Settings) -> CommandLine:
    return CommandsHere(settings.environ())


@pytest.mark.one_of("stories of a rebuild")
def test_another_country_from_start_to_drop(settings: Settings, shardpost: CommandLine) -> None:
    apply_topics(installed(settings))
    assert shardpost("rebuild", "list") == "no rebuild yet\n"
    assert "shardpost compact" in shardpost.refused("rebuild", "diff", code=1)
    produce(settings, [position("1", "a", "NASDAQ"), position("2", "b", "LON")])
    shardpost("compact")
    advice = "start one with `shardpost rebuild start`"
    assert advice in shardpost.refused("rebuild", "swap", code=1)
    options = ("--country", "GB", "--tables", "share_holders")
    form = shardpost.json("rebuild", "start", *options)
    assert (form["state"], form["country"]) == ("ready", "GB")
    names = "share_holders", "share_holders_changes"
    assert form["tables"] == {name: f"{name}.2" for name in names}
    other = shardpost.refused("rebuild", "start", "--country", "FR", code=1)
    assert (
        "rebuild 2 (of share_holders, share_holders_changes, country GB, from history) is ready"
        in other
    )
    form = shardpost.json("rebuild", "diff", code=3)
    assert form["positions"] == {"equal": 2, "changed": 0, "only_old": 0, "only_new": 0}
    assert form["holders"] == {"equal": 0, "changed": 0, "only_old": 1, "only_new": 1}
    refused = shardpost.run("rebuild", "swap", "--max-changed", "1%")
    assert refused.returncode == 3
    assert "100.00% differ, more than 1.00%: nothing was swapped" in refused.stderr
    assert shardpost.json("holders") == {"a": ["1"]}
    swapped = shardpost("rebuild", "swap", "--why", "we moved")
    assert "snapshot 2: 2 lists differ, 2 records published" in swapped
    assert shardpost.json("holders") == {"b": ["2"]}
    assert shardpost.json("holders", "--snapshot", "1") == {"a": ["1"]}
    shardpost("rebuild", "rollback")
    assert shardpost.json("holders") == {"a": ["1"]}
    [listed] = shardpost.json("rebuild", "list")
    assert (listed["state"], listed["behind"]) == ("rolled back", 1)
    shardpost("rebuild", "drop")
    assert "rebuild 2 is dropped" in shardpost("rebuild", "list")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "--tables", "letters"], "letters: expected a table: position_events, "),
        (["start", "--from", "thin air"], "'thin air'"),
        (["start", "--country", " "], "country: expected a code, found ' '"),
        (["swap", "--max-changed", "much"], "'much': expected a percentage such as 5%"),
        (["swap", "--by", " "], "--by: expected a name, found none"),
    ],
)
def test_bad_usage_is_said_before_anything_is_done(
    shardpost: CommandLine, arguments: list[str], said: str
) -> None:
    done = shardpost.run("rebuild", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def contact(client: str, *, subscribed: bool = True) -> Raw:
    form = {"Client": client, "Email": f"{client}@x.example", "Subscribed": subscribed}
    return Raw("clients", client.encode(), json.dumps(form).encode(), BEFORE_MS)


def some(clients: list[str], exchange: str) -> list[Raw]:
    return [position(f"{client}-1", client, exchange, timestamp_ms=BEFORE_MS) for client in clients]


@pytest.mark.one_of("stories of a rebuild")
def test_a_mail_run_under_way_stays_on_the_snapshot_that_it_froze(settings: Settings) -> None:
    apply_topics(installed(settings))
    here, there = [f"us{n}" for n in range(40)], [f"gb{n}" for n in range(10)]
    produce(settings, [*some(here, "NASDAQ"), *some(there, "LON")])
    produce(settings, [contact(client) for client in (*here, *there)])
    compacted(settings)
    start(settings, "GB")

    def slow(stage: str, _recipient: str) -> None:
        if stage == "end":
            time.sleep(0.05)

    with mail_server(slow) as server:
        mailing = settings.model_copy(update={"smtp_port": server.port, "mail_connections": 1})
        assert weekly_email(EmailRequest(WEEK, mode=Mode.FREEZE), installed(mailing))[0] == 0
        produce(settings, [contact("us0", subscribed=False)])
        compacted(settings)
        job = Job(mailing, WEEKLY_EMAIL, EmailRequest(WEEK))
        try:
            wait_for(lambda: server.taken.total() >= 3, "3 mails", job)
            swap(settings)
            assert snapshots.current(installed(settings).tables).rule == Rule("GB")
            assert job.wait() == 0, job.log.read_text()
        finally:
            job.kill()
        # Unsubscribed after the freeze, before the swap: the rebuilt table of clients knows it.
        expected = {f"{client}@x.example": 1 for client in here[1:]}
        assert dict(server.taken) == expected
        assert weekly_email(EmailRequest(WEEK), installed(mailing))[0] == 0
        assert dict(server.taken) == expected
