"""One shard of the weekly e-mail and a mail server that is broken, wholly or in part.

The conversations are real, the ledger is on Kafka in memory.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardpost.locks.claims import boot_clock
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.ledger_topic import (
    FRESH_SECONDS,
    Ledger,
    ShardLedger,
)
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from tests.broker.test_sending import (
    AGAIN,
    CLIENTS,
    ONE_UNKNOWN,
    RESEND,
    SHARD,
    each_once,
    history,
    only,
    quick,
    run,
    states,
    to,
)
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.mail_server import DROP, TAKE_AND_DROP, Script, mail_server
from tests.support.members import WEEK, member
from tests.support.memory_kafka import memory_kafka
from tests.support.plain_ledger import fold
from tests.support.sent_shard import SentShard

MANY = [f"client{n}" for n in range(300)]


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Settings]:
    with memory_kafka(partitions=4, kafka_timeout=30, home=tmp_path) as kafka:
        apply_topics(installed(kafka.settings))
        yield quick(kafka.settings)


def send(
    settings: Settings, script: Script, clients: list[str], resend: ResendPolicy | None = None
) -> tuple[SentShard, list[str]]:
    """Send to these clients; return the report, and who was mailed, in that order."""
    with mail_server(script) as server:
        members = [member(client) for client in clients]
        report = run(settings, server, members, resend=resend or ResendPolicy())
        return report, [address.partition("@")[0] for address in server.taken]


def refusing(reply: str, stage: str = "RCPT", *bad: str) -> Script:
    """Refuse these clients, or all."""
    addresses = set(map(to, bad))
    return lambda at, who: reply if at == stage and (not bad or who in addresses) else None


def leave(settings: Settings, entry: LedgerEntry) -> None:
    """Leave an entry in the ledger, as a run does that dies after it."""
    dead = Ledger(installed(settings), WEEK, SHARD)
    dead.open()
    dead.write([entry])


def good(_stage: str, _recipient: str) -> None:
    return None


@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "end"])
def test_a_server_that_refuses_everybody_fails_nobody_and_is_quoted(
    ready: Settings, stage: str
) -> None:
    report, mailed = send(ready, refusing("550 this machine is broken", stage), MANY)
    assert (report.failed, report.open, mailed) == (0, len(MANY), [])
    assert "the mail server refused 1" in str(report.error)
    assert "550 this machine is broken" in str(report.error)
    assert states(ready) == {}
    report, mailed = send(ready, good, MANY)
    assert report == SentShard(SHARD, sent=len(MANY))
    assert sorted(mailed) == sorted(MANY)


def test_a_server_that_puts_everybody_off_for_minutes_fails_nobody(ready: Settings) -> None:
    report, _ = send(ready, refusing("452 out of disk"), MANY)
    assert (report.failed, report.open) == (0, len(MANY))
    assert "452 out of disk" in str(report.error)
    assert states(ready) == {}


def test_half_of_a_load_balancer_that_puts_off_fails_nobody_by_bad_luck(ready: Settings) -> None:
    lock, chance = threading.Lock(), random.Random(7)  # noqa: S311

    def by_chance(stage: str, _recipient: str) -> str | None:
        with lock:
            return "452 broken half" if stage == "RCPT" and chance.random() < 0.5 else None

    report, mailed = send(quick(ready, mail_attempts=5), by_chance, MANY)
    assert (report.failed, report.open, report.sent) == (0, len(MANY) - len(mailed), len(mailed))
    assert report.open > 0
    assert "452 broken half" in str(report.error)


def test_some_bad_addresses_among_many_are_failed(ready: Settings) -> None:
    bad = MANY[5::20]
    report, mailed = send(ready, refusing("550 no such user", "RCPT", *bad), MANY)
    assert report == SentShard(SHARD, sent=len(MANY) - len(bad), failed=len(bad))
    assert not set(bad) & set(mailed)
    row = ShardLedger(installed(ready).kafka, WEEK, SHARD).rows_of(bad[0])[-1]
    assert (row["state"], row["reason"]) == ("failed", "550 no such user")


def test_a_refusal_of_a_run_that_is_killed_is_not_final(ready: Settings) -> None:
    bad = refusing("550 no such user", "RCPT", "client0")
    fenced = threading.Event()

    def script(stage: str, recipient: str) -> str | None:
        if recipient == to("client1") and not fenced.is_set():
            Ledger(installed(ready), WEEK, SHARD).open()
            fenced.set()
        return bad(stage, recipient)

    alone = quick(ready, mail_connections=1)
    assert "a newer run has taken over" in str(send(alone, script, CLIENTS)[0].error)
    assert "client0" not in states(ready)
    assert send(alone, bad, CLIENTS)[0].failed == 1


def test_failed_again_takes_the_contact_as_of_now_and_open_clients_that_of_the_freeze(
    ready: Settings,
) -> None:
    wrong = [member("client0", email="nonsense"), member("client1")]
    with mail_server(refusing("550 no such user", "RCPT", "client1")) as server:
        assert run(ready, server, wrong).failed == 2
    mended = [
        member("client0", email="nonsense", email_now="zero@x.example", name_now="Zero"),
        member("client1", email_now="one@x.example"),
        member("client2", email_now="two@x.example"),
    ]
    with mail_server() as server:
        assert run(ready, server, mended, resend=AGAIN) == SentShard(SHARD, sent=3)
        assert set(server.taken) == {"zero@x.example", "one@x.example", to("client2")}
        assert b"Hello Zero" in server.contents["zero@x.example"]


def test_who_fails_again_says_nothing_about_the_server(ready: Settings) -> None:
    clients = [f"client{n}" for n in range(50)]
    bad, rest = clients[:40], clients[40:]
    with mail_server() as server:
        run(ready, server, [*(member(client, email="bad") for client in bad), *map(member, rest)])
    report, _ = send(ready, refusing("550 no such user", "RCPT", *bad[:39]), clients, AGAIN)
    assert report == SentShard(SHARD, sent=11, failed=39)


def test_an_unknown_delivery_is_resent_last_and_only_once(ready: Settings) -> None:
    leave(ready, LedgerEntry("client0", DeliveryState.SENDING, "<0@x>"))
    late = refusing(TAKE_AND_DROP, "end", "client0")
    ready = quick(ready, mail_connections=1)

    report, mailed = send(ready, late, CLIENTS, RESEND)
    assert mailed[-1] == "client0"
    assert (report.sent, report.unknown_clients) == (9, ("client0",))
    report, mailed = send(ready, good, CLIENTS, RESEND)
    assert (report.unknown_clients, mailed) == (("client0",), [])
    assert history(ready, "client0") == ["sending", "unknown", "sending", "unknown"]


def test_a_run_that_dies_amid_a_resend_has_used_it_up(ready: Settings) -> None:
    leave(ready, LedgerEntry("client0", DeliveryState.SENDING, "<0@x>", resends=1))
    report, mailed = send(ready, good, CLIENTS, RESEND)
    assert (report.unknown_clients, len(mailed)) == (("client0",), 9)


@pytest.mark.parametrize("reply", ["451 busy", "550 no such user"])
def test_a_resend_that_is_refused_has_not_been_one(ready: Settings, reply: str) -> None:
    leave(ready, LedgerEntry("client0", DeliveryState.UNKNOWN, "<0@x>"))
    once = only("client0", "RCPT", reply)
    report, mailed = send(ready, once, CLIENTS, RESEND)
    is_final = reply.startswith("5")
    assert (report.failed, "client0" in mailed) == (int(is_final), not is_final)


def test_poison_in_the_ledger_stops_nobody(ready: Settings) -> None:
    huge = "x" * 999_900
    poison = Ledger(installed(ready), WEEK, SHARD)
    poison.open()
    record = poison._record(LedgerEntry("client0", DeliveryState.SENT))
    key = f"{WEEK}/{huge}".encode()
    poison._transactions.write(
        [
            record._replace(value=b"[" * 100_000),
            record._replace(key=f"{WEEK}/client1".encode(), value=b'{"State":' * 100_000),
            record._replace(key=key, value=b'{"State":"sending"}'),
        ]
    )
    for _ in range(2):
        report, _mailed = send(ready, good, CLIENTS)
        assert (report.sent, report.unknown, report.error) == (8, 3, None)
        assert max(map(len, report.unknown_clients)) < 200


def test_a_client_whose_id_no_record_can_hold_fails_and_the_others_are_mailed(
    ready: Settings,
) -> None:
    members = [member("x" * 1_100_000, email="x@x.example"), *map(member, CLIENTS)]
    with mail_server() as server:
        assert run(ready, server, members) == SentShard(SHARD, sent=10, failed=1)
        assert run(ready, server, members) == SentShard(SHARD, sent=10, failed=1)
        assert each_once(server)


def test_a_421_at_mail_costs_no_attempt(ready: Settings) -> None:
    """A server that takes one mail a connection, and one of whose clients is put off at first."""
    lock, mails = threading.Lock(), 0

    def script(stage: str, _recipient: str) -> str | None:
        nonlocal mails
        with lock:
            mails += stage == "MAIL"
            return "421 one is enough; then drop" if stage == "MAIL" and mails % 2 == 0 else None

    one = quick(ready, mail_connections=1, mail_attempts=1)
    report, mailed = send(one, script, CLIENTS)
    assert report == SentShard(SHARD, sent=10)
    assert mailed == CLIENTS


def by_chance(chance: random.Random, weights: dict[str | None, float]) -> Script:
    """Answer each end of a mail and each recipient by chance."""
    lock = threading.Lock()
    replies = list(weights)

    def script(stage: str, _recipient: str) -> str | None:
        with lock:
            [reply] = chance.choices(replies, list(weights.values()))
        return reply if stage in ("RCPT", "end") else None

    return script


@pytest.mark.parametrize("seed", some(range(6)))
def test_whatever_a_server_does_nobody_is_passed_over_and_nobody_gets_three(
    ready: Settings, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311
    ready = quick(ready)
    clients, taken = MANY[:60], Counter[str]()
    failed: set[str] = set()
    for number in range(5):
        is_good = number == 4
        weights: dict[str | None, float] = {
            reply: chance.random() / 8 for reply in ("451 busy", "550 no", DROP, TAKE_AND_DROP)
        }
        script = good if is_good else by_chance(chance, {None: 1.0, **weights})
        resend = ResendPolicy(resend_unknown=is_good or chance.random() < 0.5)
        with mail_server(script) as server:
            run(ready, server, list(map(member, clients)), resend=resend)
            taken += server.taken
            assert not failed & {address.partition("@")[0] for address in server.taken}
        failed = {client for client, state in states(ready).items() if state == "failed"}
    assert set(states(ready)) == set(clients)
    ledger = ShardLedger(installed(ready).kafka, WEEK, SHARD)
    for client, entry in fold(ledger.entries(wait=True)).items():
        copies = taken[to(client)]
        assert entry.resends <= 1
        match entry.state:
            case DeliveryState.SENT:
                assert 1 <= copies <= 1 + entry.resends
            case DeliveryState.UNKNOWN:
                assert entry.resends == 1
                assert copies <= 2
            case _:
                assert entry.state is DeliveryState.FAILED
                assert copies <= 1


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "alone"])
def test_a_sender_that_was_halted_amid_a_mail_sends_it_only_if_the_shard_is_still_its_own(
    settings: Settings, *, is_fenced: bool
) -> None:
    apply_topics(installed(settings))
    senders: list[subprocess.Popen[str]] = []
    halted: list[str] = []

    def script(stage: str, recipient: str) -> None:
        if (stage, recipient) != ("DATA", to("client3")) or halted:
            return
        halted.append(recipient)
        senders[0].send_signal(signal.SIGSTOP)
        if is_fenced:
            Ledger(installed(settings), WEEK, SHARD).open()
        since = boot_clock()
        while boot_clock() - since <= FRESH_SECONDS:
            time.sleep(0.1)
        senders[0].send_signal(signal.SIGCONT)

    with mail_server(script) as server:
        settings = quick(settings, smtp_port=server.port, mail_connections=1, smtp_timeout=60.0)
        command = [sys.executable, "-m", "tests.support.shard_process"]
        environ = os.environ | settings.environ()
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as sender:
            senders.append(sender)
            said, _ = sender.communicate()
        assert halted
        if is_fenced:
            assert "a newer run has taken over" in said
            assert each_once(server, CLIENTS[:3])
            assert run(settings, server) == ONE_UNKNOWN
        else:
            assert said == "None"
            assert each_once(server)
