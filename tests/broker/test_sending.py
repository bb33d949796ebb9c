"""One shard of the weekly e-mail against a mail server that misbehaves.

What is about the ledger is tested with a real one, what is about the server with one in memory.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardpost.kafka.transactions import FencedError
from shardpost.settings import Settings
from shardpost.topics import topics_file
from shardpost.topics.creation import apply_topics
from shardpost.topics.declared import DECISIONS, WEEKLY_EMAILS
from shardpost.weekly_email import shard_sender, week_decisions
from shardpost.weekly_email.email_job import ResendPolicy
from shardpost.weekly_email.ledger_topic import Ledger, ShardLedger
from shardpost.weekly_email.model import retry
from shardpost.weekly_email.model.email_context import EmailContext
from shardpost.weekly_email.model.ledger import DeliveryState, LedgerEntry
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.send_shard import SendOptions, Shard, send_shard, settle_refusals
from shardpost.weekly_email.smtp_server import TIMEOUTS, SenderSettings
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.mail_server import (
    DROP,
    EHLO,
    HANG,
    PIPELINING,
    SAY_AND_DROP,
    TAKE_AND_DROP,
    TAKE_AND_HANG,
    MailServer,
    Script,
    mail_server,
)
from tests.support.members import MEMBERS, NOW, WEEK, member
from tests.support.memory_kafka import memory_kafka
from tests.support.plain_ledger import fold
from tests.support.sent_shard import SentShard, counted

SHARD = 2
HOLD = ResendPolicy()
RESEND = ResendPolicy(resend_unknown=True)
AGAIN = ResendPolicy(again_failed=True)
CLIENTS = [f"client{n}" for n in range(10)]
ALL_SENT = SentShard(SHARD, sent=10)
ONE_UNKNOWN = SentShard(SHARD, sent=9, unknown=1, unknown_clients=("client3",))


def to(client: str) -> str:
    return f"{client}@x.example"


@pytest.fixture(params=[EHLO, PIPELINING], ids=["in turn", "at once"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers announce that commands may come at once, or not."""
    monkeypatch.setattr(MailServer, "ehlo", request.param)


@pytest.fixture
def quick_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only two seconds for the answer to the end of a mail."""
    monkeypatch.setitem(TIMEOUTS, "end", 2)


@pytest.fixture
def on_broker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Give settings whose ledger is on a real broker."""
    monkeypatch.setattr(topics_file, "DECLARED", (WEEKLY_EMAILS, DECISIONS))
    apply_topics(installed(settings))
    return quick(settings)


@pytest.fixture(params=some(["memory", "broker"], 0))
def ready(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Give settings whose ledger is on Kafka in memory; with `--all`, on a real broker too."""
    if request.param == "broker":
        yield request.getfixturevalue("on_broker")
        return
    with memory_kafka(partitions=4, kafka_timeout=30, home=tmp_path) as kafka:
        apply_topics(installed(kafka.settings))
        yield quick(kafka.settings)


def quick(settings: Settings, **more: Any) -> Settings:
    return settings.model_copy(update={"mail_attempts": 3, "smtp_timeout": 2} | more)


def run(
    settings: Settings,
    server: MailServer | None,
    members: list[dict[str, Any]] | None = None,
    *,
    resend: ResendPolicy = HOLD,
    rate: float | None = None,
) -> SentShard:
    if server is not None:
        settings = settings.model_copy(update={"smtp_port": server.port})
    chosen = members if members is not None else [member(client) for client in CLIENTS]
    sender = installed(settings).values(SenderSettings).shown()
    context = EmailContext(WEEK, WEEK.end, "US", sender)
    options = SendOptions(context, resend, NOW, time.time())
    report = send_shard(
        installed(settings), options, Shard(SHARD, len(chosen), rate), batches(chosen)
    )
    [settled] = settle_refusals(installed(settings), WEEK, [report])
    return counted(settings, WEEK, [one["client"] for one in chosen], settled)


def batches(members: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(members), 7):
        yield pa.RecordBatch.from_pylist(members[start : start + 7], MEMBERS)


def states(settings: Settings, *, wait: bool = False) -> dict[str, str]:
    ledger = ShardLedger(installed(settings).kafka, WEEK, SHARD)
    return {client: str(entry.state) for client, entry in fold(ledger.entries(wait=wait)).items()}


def opened(settings: Settings, week: IsoWeek = WEEK) -> Ledger:
    """Return the shard's ledger, open for a run."""
    ledger = Ledger(installed(settings), week, SHARD)
    ledger.open()
    return ledger


def history(settings: Settings, client: str) -> list[str]:
    """Return a client's states; on a busy machine `sending` may be committed more than once.

    A commit is readable a moment after it is made: what is not committed yet is waited for.
    """
    ledger = ShardLedger(installed(settings).kafka, WEEK, SHARD)
    list(ledger.entries(wait=True))
    found = [row["state"] for row in ledger.rows_of(client)]
    return [state for state, before in zip(found, [None, *found], strict=False) if state != before]


def only(client: str, stage: str, *replies: str | None) -> Script:
    """Say those things to one client at one stage, one each time; then behave."""
    left, lock = list(replies), threading.Lock()

    def script(at: str, recipient: str) -> str | None:
        with lock:
            return left.pop(0) if left and at == stage and recipient == to(client) else None

    return script


def each_once(server: MailServer, clients: list[str] = CLIENTS) -> bool:
    return server.taken == dict.fromkeys(map(to, clients), 1)


@pytest.mark.usefixtures("either_way")
def test_everybody_gets_one_and_a_second_run_mails_nobody(on_broker: Settings) -> None:
    with mail_server() as server:
        assert run(on_broker, server) == ALL_SENT
        assert run(on_broker, server) == ALL_SENT
        assert each_once(server)
        assert server.connections <= 4
    assert states(on_broker) == dict.fromkeys(CLIENTS, "sent")


@pytest.mark.usefixtures("either_way")
def test_the_ledger_says_sending_before_the_server_hears_of_a_client(on_broker: Settings) -> None:
    found: dict[str, list[str]] = {}

    def script(stage: str, recipient: str) -> None:
        if stage == "RCPT":
            client = recipient.partition("@")[0]
            found[client] = history(on_broker, client)

    with mail_server(script) as server:
        run(on_broker, server)
    assert found == {client: ["sending"] for client in CLIENTS}
    assert history(on_broker, "client3") == ["sending", "sent"]


def test_who_is_not_mailed_is_in_the_ledger_with_the_reason(on_broker: Settings) -> None:
    members = [
        member("client0"),
        member("client1", subscribed=False),
        member("client2", email="nonsense"),
        member("client3", has_contact=False, email=None, name=None, subscribed=None),
        member("client4", subscribed=None),
        member("client5", email=None),
    ]
    with mail_server() as server:
        assert run(on_broker, server, members) == SentShard(SHARD, sent=1, failed=3, suppressed=2)
        assert run(on_broker, server, members).failed == 3
        assert each_once(server, ["client0"])
    rows = ShardLedger(installed(on_broker).kafka, WEEK, SHARD).rows_of("client2")
    assert [row["state"] for row in rows] == ["failed"]
    assert "nonsense" in rows[0]["reason"]


def test_failed_is_final_until_told_to_try_again(on_broker: Settings) -> None:
    with mail_server(only("client3", "RCPT", "550 no such user")) as server:
        assert run(on_broker, server) == SentShard(SHARD, sent=9, failed=1)
        assert run(on_broker, server) == SentShard(SHARD, sent=9, failed=1)
        assert to("client3") not in server.taken
        assert run(on_broker, server, resend=AGAIN) == ALL_SENT
        assert each_once(server)
    assert history(on_broker, "client3") == ["sending", "open", "failed", "sending", "sent"]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "end"])
@pytest.mark.parametrize("reply", ["451 busy", "421 closing; then drop"])
def test_a_4xx_comes_back_later_and_goes_through(ready: Settings, stage: str, reply: str) -> None:
    ready = quick(ready, mail_connections=1)
    with mail_server(only("client3" if stage != "MAIL" else "", stage, reply)) as server:
        server.script = only("client3", stage, reply) if stage != "MAIL" else nth_mail(4, reply)
        assert run(ready, server) == ALL_SENT
        assert each_once(server)
    late = history(ready, "client3") if stage != "MAIL" else None
    assert late in (None, ["sending", "open", "sending", "sent"])


def nth_mail(nth: int, reply: str) -> Script:
    seen = 0

    def script(stage: str, _recipient: str) -> str | None:
        nonlocal seen
        seen += stage == "MAIL"
        return reply if stage == "MAIL" and seen == nth else None

    return script


def test_others_go_on_while_a_4xx_waits(ready: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY", 1)
    patient = quick(ready, mail_connections=1)
    with mail_server(only("client0", "RCPT", "451 greylisted")) as server:
        run(patient, server)
        assert list(server.taken)[-1] == to("client0")
        assert each_once(server)


def test_a_4xx_that_outlasts_its_attempts_is_failed(ready: Settings) -> None:
    with mail_server(only("client3", "RCPT", *["451 busy"] * 9)) as server:
        assert run(ready, server) == SentShard(SHARD, sent=9, failed=1)
        assert server.seen["RCPT", to("client3")] == 3
    reason = ShardLedger(installed(ready).kafka, WEEK, SHARD).rows_of("client3")[-1]["reason"]
    assert reason == "451 busy (at attempt 3 of 3)"


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("stage", ["MAIL", "RCPT", "DATA", "end"])
def test_a_5xx_fails_that_one_mail(ready: Settings, stage: str) -> None:
    script = nth_mail(4, "550 no") if stage == "MAIL" else only("client3", stage, "550 no")
    with mail_server(script) as server:
        assert run(ready, server) == SentShard(SHARD, sent=9, failed=1)
        assert sum(server.taken.values()) == 9


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("stage", ["RCPT", "DATA"])
@pytest.mark.parametrize("does", [DROP, HANG])
def test_a_connection_lost_before_the_final_dot_is_not_unknown(
    ready: Settings, stage: str, does: str
) -> None:
    with mail_server(only("client3", stage, does)) as server:
        assert run(ready, server) == ALL_SENT
        assert each_once(server)


def test_a_connection_dropped_between_mails_is_opened_again(ready: Settings) -> None:
    script = only("client3", "end", "250 taken" + SAY_AND_DROP)
    with mail_server(script) as server:
        assert run(ready, server) == ALL_SENT
        assert each_once(server)
        assert server.connections == 5


@pytest.mark.usefixtures("either_way", "quick_end")
@pytest.mark.parametrize(
    "does", [HANG, DROP, TAKE_AND_HANG, TAKE_AND_DROP, "garbage" + SAY_AND_DROP]
)
def test_no_answer_after_the_final_dot_is_unknown_and_held(ready: Settings, does: str) -> None:
    with mail_server(only("client3", "end", does)) as server:
        assert run(ready, server) == ONE_UNKNOWN
        assert run(ready, server) == ONE_UNKNOWN
        assert server.taken[to("client3")] == does.startswith("take")
    assert history(ready, "client3") == ["sending", "unknown"]


def test_what_is_held_is_resent_under_the_same_message_id_when_told(on_broker: Settings) -> None:
    with mail_server(only("client3", "end", TAKE_AND_DROP)) as server:
        run(on_broker, server)
        assert run(on_broker, server, resend=RESEND) == ALL_SENT
        assert server.taken[to("client3")] == 2
        assert len(server.message_ids[to("client3")]) == 1


@pytest.mark.usefixtures("quick_end")
def test_a_server_that_falls_silent_stops_its_shard_after_three(ready: Settings) -> None:
    with mail_server(lambda stage, _: TAKE_AND_HANG if stage == "end" else None) as server:
        report = run(ready, server)
        assert (report.unknown, report.open, report.sent) == (3, 7, 0)
        assert "no reply after the end of 3 mails in a row" in str(report.error)
        assert sum(server.taken.values()) == 3
    with mail_server() as server:
        again = run(ready, server)
        assert (again.sent, again.unknown, again.error) == (7, 3, None)
        assert not set(map(to, again.unknown_clients)) & set(server.taken)


def test_a_server_that_is_down_leaves_everybody_open_and_nothing_in_the_ledger(
    on_broker: Settings,
) -> None:
    report = run(on_broker, None)
    assert report.open == 10
    assert f"127.0.0.1:{on_broker.smtp_port}: no connection in 3 attempts" in str(report.error)
    assert states(on_broker) == {}


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("stage", "reply", "said"),
    [
        *((at, "421 busy" + SAY_AND_DROP, "421 busy") for at in ("connect", "EHLO")),
        *((at, "554 no service" + SAY_AND_DROP, "554 no service") for at in ("connect", "EHLO")),
        ("MAIL", "530 login first", "530 login first"),
        ("RCPT", DROP, "closed"),
    ],
)
def test_a_server_that_refuses_or_drops_everything_stops_the_shard_and_fails_nobody(
    ready: Settings, stage: str, reply: str, said: str
) -> None:
    with mail_server(lambda at, _: reply if at == stage else None) as server:
        report = run(ready, server)
    assert (report.open, report.failed, report.unknown) == (10, 0, 0)
    assert said in str(report.error)
    assert states(ready) == {}


def test_a_server_that_comes_back_in_time_is_waited_for(ready: Settings) -> None:
    refusals = iter([*["421 busy" + SAY_AND_DROP] * 4])
    with mail_server(lambda at, _: next(refusals, None) if at == "connect" else None) as server:
        assert run(ready, server) == ALL_SENT


def test_a_server_with_fewer_connections_than_wanted_is_used_as_far_as_it_goes(
    ready: Settings,
) -> None:
    allowed, lock = [2], threading.Lock()

    def script(stage: str, _recipient: str) -> str | None:
        with lock:
            if stage != "connect":
                return None
            allowed[0] -= 1
            return None if allowed[0] >= 0 else "421 too many" + SAY_AND_DROP

    with mail_server(script) as server:
        assert run(ready, server) == ALL_SENT
        assert each_once(server)


def test_one_mail_that_always_loses_its_connection_stays_open(ready: Settings) -> None:
    with mail_server(only("client3", "DATA", *[DROP] * 99)) as server:
        report = run(ready, server)
        assert (report.sent, report.open) == (9, 1)
        assert "client3" in str(report.error)
    assert history(ready, "client3")[-1] == "open"


@pytest.mark.usefixtures("either_way")
def test_an_address_beyond_ascii_goes_by_smtputf8_or_fails_with_a_reason(ready: Settings) -> None:
    members = [member("client1", email="jörg@x.example"), member("client2")]
    with mail_server(lambda at, _: "250 plain" if at == "EHLO" else None) as server:
        assert run(ready, server, members) == SentShard(SHARD, sent=1, failed=1)
    assert (
        "SMTPUTF8"
        in ShardLedger(installed(ready).kafka, WEEK, SHARD).rows_of("client1")[-1]["reason"]
    )
    with mail_server() as server:
        assert run(ready, server, members, resend=AGAIN).sent == 2
        assert server.taken == {"jörg@x.example": 1}


def test_a_leading_dot_arrives_as_it_was(ready: Settings) -> None:
    dots = ".\n..\n.x"
    with mail_server() as server:
        run(ready, server, [member("client1", name=".dot " + dots)])
        content = server.contents[to("client1")]
    assert content.endswith(b"--\r\n")
    assert b"Hello .dot" in content


def test_the_rate_is_kept(ready: Settings) -> None:
    with mail_server() as server:
        start = time.monotonic()
        run(ready, server, rate=10)
        assert time.monotonic() - start >= 0.6
        assert each_once(server)


def test_a_run_that_was_killed_leaves_its_sending_unknown(on_broker: Settings) -> None:
    dead = opened(on_broker)
    dead.write([LedgerEntry(f"client{n}", DeliveryState.SENDING, f"<{n}@x>") for n in (4, 5)])
    dead.write([LedgerEntry("client5", DeliveryState.SENT, "<5@x>")])
    with mail_server() as server:
        report = run(on_broker, server)
        assert report == SentShard(SHARD, sent=9, unknown=1, unknown_clients=("client4",))
        assert each_once(server, [c for c in CLIENTS if c not in ("client4", "client5")])
        assert run(on_broker, server, resend=RESEND) == ALL_SENT
        assert server.taken[to("client4")] == 1
    assert history(on_broker, "client4") == ["sending", "unknown", "sending", "sent"]


def test_a_week_that_is_paused_stops_between_two_mails_and_goes_on_when_it_is_resumed(
    ready: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_sender, "WATCH_SECONDS", 0)
    # The server answers when the pause is in Kafka.
    one_at_a_time = ready.model_copy(update={"mail_connections": 1, "smtp_timeout": 60})

    def pause_at_the_third(stage: str, _recipient: str) -> None:
        if stage == "end" and sum(server.taken.values()) == 2:
            week_decisions.pause(installed(one_at_a_time), WEEK, "bob", "a wrong price", NOW)

    with mail_server(pause_at_the_third) as server:
        report = run(one_at_a_time, server)
        assert (report.sent, report.open, report.unknown) == (3, 7, 0)
        assert "paused" in str(report.error)
        assert "the remaining clients are not mailed yet" in str(report.error)
        assert sorted(states(ready).values()) == ["sent"] * 3
        assert run(one_at_a_time, server).sent == 3  # at once, by the first look
        week_decisions.resume(installed(one_at_a_time), WEEK, "bob", "the price is right", NOW)
        assert run(one_at_a_time, server) == ALL_SENT
    assert set(server.taken.values()) == {1}
    assert len(server.taken) == 10


def test_a_zombie_is_fenced_and_leaves_no_trace(on_broker: Settings) -> None:
    zombie = opened(on_broker)
    zombie.write([LedgerEntry("client1", DeliveryState.SENDING)])
    heir = Ledger(installed(on_broker), WEEK, SHARD)
    assert heir.open().states(["client1"]) == [DeliveryState.SENDING]
    with pytest.raises(FencedError, match="a newer run has taken over shard 2"):
        zombie.write([LedgerEntry(f"client{n}", DeliveryState.SENT) for n in (1, 2)])
    with pytest.raises(FencedError):
        zombie.write([LedgerEntry("client2", DeliveryState.SENDING)])
    heir.write([LedgerEntry("client1", DeliveryState.UNKNOWN)])
    assert states(on_broker, wait=True) == {"client1": "unknown"}


@pytest.mark.usefixtures("either_way")
def test_a_sender_that_is_fenced_mid_shard_says_nothing_more_to_the_mail_server(
    on_broker: Settings,
) -> None:
    fenced = threading.Event()

    def script(stage: str, recipient: str) -> None:
        if (stage, recipient) == ("RCPT", to("client3")) and not fenced.is_set():
            Ledger(installed(on_broker), WEEK, SHARD).open()
            fenced.set()

    on_broker = quick(on_broker, mail_connections=1)
    with mail_server(script) as server:
        report = run(on_broker, server)
        assert "a newer run has taken over" in str(report.error)
        assert each_once(server, CLIENTS[:4])
        assert run(on_broker, server) == ONE_UNKNOWN
        assert each_once(server)


def test_an_open_transaction_of_a_dead_run_is_not_taken_for_the_end(on_broker: Settings) -> None:
    dead = opened(on_broker)
    dead._transactions._producer.begin_transaction()
    dead._transactions._produce(dead._record(LedgerEntry("client1", DeliveryState.SENDING)))
    dead._transactions._producer.flush(5)
    with mail_server() as server:
        assert run(on_broker, server) == ALL_SENT
        assert each_once(server)


def test_a_report_does_not_wait_for_an_open_transaction(on_broker: Settings) -> None:
    writer = opened(on_broker)
    writer.write([LedgerEntry("client1", DeliveryState.SENDING)])
    writer._transactions._producer.begin_transaction()
    writer._transactions._produce(writer._record(LedgerEntry("client1", DeliveryState.SENT)))
    writer._transactions._producer.flush(5)
    assert states(on_broker) == {"client1": "sending"}
    writer._transactions._producer.abort_transaction(5)


def test_other_weeks_of_the_same_client_are_not_mixed_up(ready: Settings) -> None:
    opened(ready, WEEK.previous).write(
        [LedgerEntry(client, DeliveryState.SENT) for client in CLIENTS]
    )
    with mail_server() as server:
        assert run(ready, server) == ALL_SENT
        assert each_once(server)
