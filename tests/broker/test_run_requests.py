"""Run requests on a real broker: many ask, one runs; the Airflow is the test's own."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from shardpost.adapters import decisions, topics
from shardpost.adapters.kafka import admin, producer
from shardpost.adapters.run_list import held, listed
from shardpost.dispatching.partition import Tally
from shardpost.dispatching.release import release
from shardpost.domain.partitioning import partition_of
from shardpost.domain.run_commands import State
from shardpost.errors import ShardpostError
from shardpost.settings import Settings
from tests.airflow_server import AirflowServer, airflow_server
from tests.broker.asking import KEY, ask, decided, history, request, run, why


@pytest.fixture
def airflow() -> Iterator[AirflowServer]:
    with airflow_server(weekly_email=False, compact_positions=False) as played:
        yield played


@pytest.fixture
def ready(settings: Settings, airflow: AirflowServer) -> Settings:
    own = settings.model_copy(update={"partitions": 2, **airflow.environ()})
    topics.apply(own)
    return own


def test_the_first_request_wins_and_the_same_again_changes_nothing(
    ready: Settings, airflow: AirflowServer
) -> None:
    ask(ready, KEY, request({"week": "2026-W47"}, by="anna"))
    ask(ready, KEY, request({"week": "2026-W47"}, by="ben"))
    tally = run(ready)
    assert (tally.issued, tally.started, tally.already_running) == (1, 1, 1)
    assert [form["conf"] for form in airflow.runs.values()] == [{"week": "2026-W47"}]

    issued, started = history(ready)
    assert issued.command is not None
    assert json.loads(issued.command.value()) == {
        "State": "issued",
        "Dag": "weekly_email",
        "Conf": {"week": "2026-W47"},
        "RequestedBy": "anna",
        "RequestOffset": 0,
        "RunId": airflow.started[0],
    }
    assert started.command == issued.command.started
    assert run(ready) == Tally()
    assert len(airflow.started) == 1


def test_another_payload_is_a_conflict_that_is_kept_and_not_run(
    ready: Settings, airflow: AirflowServer
) -> None:
    ask(ready, KEY, request({"week": "2026-W47"}))
    ask(ready, KEY, request({"week": "2026-W46"}, by="ben"))
    assert run(ready).conflicts == 1
    assert len(airflow.runs) == 1
    [(decision, headers)] = decisions.every(ready)
    assert decision.about == KEY.encode()
    assert "asked for by anna" in decision.why
    assert json.loads(headers["request"]) == request({"week": "2026-W46"}, by="ben")
    command, conflict = listed(ready)
    assert (command["state"], command["requested_by"]) == ("started", "anna")
    assert (conflict["state"], conflict["requested_by"]) == ("conflict", "ben")
    assert (
        set(command)
        == set(conflict)
        == {*("key", "dag", "run_id", "state", "requested_by", "since")}
    )


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_run_that_ended_frees_its_key_and_the_next_request_runs_again(
    ready: Settings, airflow: AirflowServer, state: str
) -> None:
    ask(ready, KEY, request())
    run(ready)
    airflow.end(airflow.started[0], state)
    ask(ready, KEY, request({"dry_run": True}))
    tally = run(ready)
    assert (tally.released, tally.issued, tally.started) == (1, 1, 1)
    assert [entry.command and str(entry.command.state) for entry in history(ready)] == [
        *("issued", "started", None, "issued", "started")
    ]
    airflow.end_all()
    assert run(ready).released == 1
    assert held(ready) == []
    assert decided(ready) == []


def test_a_request_from_before_a_runs_end_changes_nothing_though_it_is_read_after_it(
    ready: Settings, airflow: AirflowServer
) -> None:
    ask(ready, KEY, request())
    run(ready)
    ask(ready, KEY, request(by="ben"))
    time.sleep(0.01)  # a record's time has milliseconds
    airflow.end_all()
    tally = run(ready)
    assert (tally.already_running, tally.released, tally.issued) == (1, 1, 0)
    assert len(airflow.started) == 1


def test_a_run_that_was_deleted_frees_its_key_on_record(
    ready: Settings, airflow: AirflowServer
) -> None:
    ask(ready, KEY, request())
    run(ready)
    airflow.delete(airflow.started[0])
    ask(ready, KEY, request())
    tally = run(ready)
    assert (tally.released, tally.issued) == (1, 1)
    assert decided(ready) == [("released", KEY)]
    assert len(set(airflow.started)) == 2


def test_with_airflow_down_commands_are_committed_and_started_later(
    ready: Settings, airflow: AirflowServer
) -> None:
    down = ready.model_copy(update={"airflow_url": "http://127.0.0.1:1"})
    ask(ready, KEY, request())
    with pytest.raises(ShardpostError, match=r"1 commands are committed and not started.*answer"):
        run(down)
    assert [str(entry.command.state) for entry in held(ready) if entry.command] == ["issued"]
    with pytest.raises(ShardpostError, match="1 runs were not looked at"):
        run(down)
    assert run(ready).started == 1
    assert len(airflow.started) == 1


def test_a_run_that_ended_while_dispatches_were_down_is_released(
    ready: Settings, airflow: AirflowServer
) -> None:
    down = ready.model_copy(update={"airflow_url": "http://127.0.0.1:1"})
    ask(ready, KEY, request())
    run(ready)
    airflow.end_all()
    with pytest.raises(ShardpostError, match=r"0 commands .* 1 runs were not looked at"):
        run(down)
    assert len(held(ready)) == 1
    assert run(ready).released == 1


def test_an_airflow_that_breaks_leaves_the_command_for_the_next_dispatch(
    ready: Settings, airflow: AirflowServer
) -> None:
    ask(ready, KEY, request())
    airflow.breaks = True
    with pytest.raises(ShardpostError, match="database is locked"):
        run(ready)
    airflow.breaks = False
    assert run(ready).started == 1


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (request(dag="no_such_dag"), "may not be asked for, only compact_positions"),
        (request(dag="../variables"), "may not be asked for"),
        (request(dag="sweep_dead_letters"), "Airflow has no DAG sweep_dead_letters"),
        (request(dag="compact_positions"), "DAG compact_positions is paused in Airflow"),
        (request({"week": 7}), "Airflow does not take it: 7 is not of type 'string'"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason_and_the_key_is_free(
    ready: Settings, airflow: AirflowServer, asked: dict[str, Any], reason: str
) -> None:
    airflow.dags["compact_positions"] = True
    airflow.refuses = "7 is not of type 'string'" if asked["Conf"] else None
    ask(ready, KEY, asked)
    assert run(ready).refused == 1
    assert reason in why(ready)
    assert decided(ready) == [("refused", KEY)]
    assert held(ready) == []
    airflow.refuses = None
    ask(ready, KEY, request())
    assert run(ready).started == 1


def test_malformed_requests_are_refused_and_block_nothing(
    ready: Settings, airflow: AirflowServer
) -> None:
    bad: list[tuple[str | bytes | None, object]] = [
        ("a", b"not JSON"),
        ("b", b"\xff\xfe"),
        ("c", None),
        ("d", b""),
        ("e", {"Conf": {}}),
        ("f", {"Dag": 1}),
        ("g", {"Dag": "weekly_email", "Conf": [1]}),
        ("h", {"Dag": "weekly_email", "RequestedBy": {}}),
        ("i", b"[" * 60_000),
        ("j", b'{"Dag":"weekly_email","Conf":{"n":1e999}}'),
        ("k", b'{"Dag":"weekly_email","Conf":{"s":"\\ud800"}}'),
        ("l", {"Dag": "weekly_email", "Conf": {"x": "y" * 900_000}}),
        ("m" * 100_000, request()),
        (b"\xff", request()),
        (None, request()),
        ("n", b"null"),
    ]
    for key, value in bad:
        ask(ready, key, value, partition=1)
    good = next(f"good{n}" for n in range(100) if partition_of(f"good{n}", 2) == 1)
    ask(ready, good, request())
    tally = run(ready)
    assert (tally.refused, tally.issued, tally.started) == (len(bad), 1, 1)
    found = list(decisions.every(ready))
    assert len(found) == len(bad)
    assert all(f"{ready.topic_run_requests}[1]@" in one.why for one, _ in found)
    assert run(ready) == Tally()


def test_a_request_in_the_wrong_partition_goes_to_its_own_and_is_asked_once(
    ready: Settings, airflow: AirflowServer
) -> None:
    for partition in (0, 1):
        ask(ready, KEY, request(), partition=partition)
    tally = run(ready)
    assert (tally.forwarded, tally.issued, tally.already_running) == (1, 1, 1)
    assert len(airflow.runs) == 1


def test_an_old_request_is_refused(ready: Settings, airflow: AirflowServer) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=6, minutes=1)
    ask(ready, KEY, request(), timestamp=int(long_ago.timestamp() * 1000))
    assert run(ready).refused == 1
    assert "more than 6 days ago" in why(ready)
    assert airflow.runs == {}


def test_a_command_that_cannot_be_read_holds_its_key(
    ready: Settings, airflow: AirflowServer
) -> None:
    partition = partition_of(KEY, 2)
    client = producer(ready)
    client.produce(ready.topic_run_commands, b"?", KEY, partition=partition)
    client.flush(30)
    ask(ready, KEY, request())
    assert run(ready).conflicts == 1
    assert airflow.runs == {}
    assert [str(entry.command.state) for entry in held(ready) if entry.command] == [
        str(State.UNREADABLE)
    ]


def test_a_key_is_released_by_hand_on_record(ready: Settings, airflow: AirflowServer) -> None:
    ask(ready, KEY, request())
    run(ready)
    freed = release(ready, KEY, "ben", "it hangs", datetime.now(UTC))
    assert freed.run_id == airflow.started[0]
    assert held(ready) == []
    [(decision, _)] = decisions.every(ready)
    assert (decision.kind, decision.who, decision.why) == ("released", "ben", "it hangs")
    with pytest.raises(ShardpostError, match="nothing runs under the key"):
        release(ready, KEY, "ben", "again", datetime.now(UTC))
    ask(ready, KEY, request())
    assert run(ready).started == 1


def test_topics_that_part_keys_and_commands_are_refused(ready: Settings) -> None:
    name, client = f"{ready.topic_run_commands}-3", admin(ready)
    client.create_topics([NewTopic(name, 3, 1)])[name].result()
    with pytest.raises(ShardpostError, match=r"has 2 partitions and .* 3, expected as many"):
        run(ready.model_copy(update={"topic_run_commands": name}))


def test_a_thousand_requests_of_eight_producers_over_a_hundred_keys_give_a_hundred_runs(
    ready: Settings, airflow: AirflowServer
) -> None:
    def produce(number: int) -> None:
        client = producer(ready)
        for n in range(125):
            key = f"weekly_email/{(number * 125 + n) % 100}"
            client.produce(ready.topic_run_requests, json.dumps(request()).encode(), key)
        assert client.flush(30) == 0

    with ThreadPoolExecutor(9) as pool:
        made = [pool.submit(produce, number) for number in range(8)]
        tallies = [pool.submit(run, ready).result() for _ in range(2)]  # while they are made
        for one in made:
            one.result()
    tallies.append(run(ready))
    assert sum(tally.issued for tally in tallies) == 100
    assert sum(tally.already_running for tally in tallies) == 900
    assert len(airflow.started) == len(set(airflow.started)) == 100
    assert len(held(ready)) == 100
