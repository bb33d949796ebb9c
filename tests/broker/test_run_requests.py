"""Run requests on a real broker, `shardpost runs`, and the watch; the Airflow is the test's own."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic

from shardpost.commands import runs
from shardpost.errors import ShardpostError
from shardpost.run_requests.model.commands import CommandState, DispatchCounts
from shardpost.run_requests.request_client import RunRow, commands_in_force, list_decided, list_runs
from shardpost.run_requests.request_topics import RequestWatch
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.wording import json_text
from tests.support import decisions
from tests.support.airflow_server import AirflowServer
from tests.support.command_line import CommandLine, CommandLineHere
from tests.support.installed import installed
from tests.support.job_process import wait_for
from tests.support.run_requests import KEY, ask, decided, history, request, run


def test_the_first_request_wins_and_the_same_again_changes_nothing(
    askable: Settings, airflow: AirflowServer
) -> None:
    ask(askable, KEY, request({"week": "2026-W47"}, by="anna"))
    ask(askable, KEY, request({"week": "2026-W47"}, by="ben"))
    counts = run(askable)
    assert (counts.issued, counts.started, counts.already_running) == (1, 1, 1)
    assert [form["conf"] for form in airflow.runs.values()] == [{"week": "2026-W47"}]

    issued, started = history(askable)
    assert issued.command is not None
    assert json.loads(issued.command.value()) == {
        "State": "issued",
        "Dag": "weekly_email",
        "Conf": {"week": "2026-W47"},
        "RequestedBy": "anna",
        "RequestOffset": 0,
        "RunId": airflow.started[0],
    }
    assert started.command == replace(issued.command, state=CommandState.STARTED)
    assert run(askable) == DispatchCounts()
    assert len(airflow.started) == 1


def test_another_payload_is_a_conflict_that_is_kept_and_not_run(
    askable: Settings, airflow: AirflowServer
) -> None:
    ask(askable, KEY, request({"week": "2026-W47"}))
    ask(askable, KEY, request({"week": "2026-W46"}, by="ben"))
    assert run(askable).conflicts == 1
    assert len(airflow.runs) == 1
    [(decision, headers)] = decisions.list_all(askable)
    assert decision.about == KEY.encode()
    assert "requested by anna" in decision.why
    assert json.loads(headers["request"]) == request({"week": "2026-W46"}, by="ben")
    command, conflict = listed(askable)
    assert (command.state, command.requested_by) == ("started", "anna")
    assert (conflict.state, conflict.requested_by) == ("conflict", "ben")
    names = {"key", "dag", "run_id", "state", "requested_by", "since"}
    assert json.loads(json_text(conflict)).keys() == names


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_run_that_ended_frees_its_key_and_the_next_request_runs_again(
    askable: Settings, airflow: AirflowServer, state: str
) -> None:
    ask(askable, KEY, request())
    run(askable)
    airflow.end(airflow.started[0], state)
    ask(askable, KEY, request({"dry_run": True}))
    counts = run(askable)
    assert (counts.released, counts.issued, counts.started) == (1, 1, 1)
    assert [entry.command and str(entry.command.state) for entry in history(askable)] == [
        *("issued", "started", None, "issued", "started")
    ]
    airflow.end_all()
    assert run(askable).released == 1
    assert commands_in_force(installed(askable).kafka) == []
    assert decided(askable) == []


def test_with_airflow_down_commands_are_committed_and_started_later(
    askable: Settings, airflow: AirflowServer
) -> None:
    down = askable.model_copy(update={"airflow_url": "http://127.0.0.1:1"})
    ask(askable, KEY, request())
    with pytest.raises(ShardpostError, match=r"1 command is committed and not started.*answer"):
        run(down)
    assert [
        str(entry.command.state)
        for entry in commands_in_force(installed(askable).kafka)
        if entry.command
    ] == ["issued"]
    with pytest.raises(ShardpostError, match="1 run could not be checked"):
        run(down)
    assert run(askable).started == 1
    assert len(airflow.started) == 1


REFUSED = {
    "unknown": (request(dag="no_such_dag"), "cannot be requested, only compact_positions"),
    "path": (request(dag="../variables"), "cannot be requested"),
    "missing": (request(dag="sweep_dead_letters"), "Airflow has no DAG sweep_dead_letters"),
    "paused": (request(dag="compact_positions"), "DAG compact_positions is paused in Airflow"),
    "wrong": (request({"week": 7}), "Airflow rejects the run: 7 is not of type 'string'"),
}


def test_what_cannot_run_is_refused_with_the_reason_and_the_key_is_free(
    askable: Settings, airflow: AirflowServer
) -> None:
    airflow.dags["compact_positions"] = True
    airflow.refuses = "7 is not of type 'string'"
    for key, (asked, _) in REFUSED.items():
        ask(askable, key, asked)
    assert run(askable).refused == len(REFUSED)
    found = {one.about.decode(): one.why for one, _ in decisions.list_all(askable)}
    assert found.keys() == REFUSED.keys()
    for key, (_, reason) in REFUSED.items():
        assert reason in found[key], key
    assert commands_in_force(installed(askable).kafka) == []
    airflow.refuses = None
    ask(askable, "wrong", request())
    assert run(askable).started == 1


def test_malformed_requests_are_refused_and_block_nothing(
    askable: Settings, airflow: AirflowServer
) -> None:
    bad: list[tuple[str | bytes | None, object]] = [
        *(("a", b"not JSON"), ("b", None), ("c", b""), ("d", b"[" * 60_000)),
        ("e", {"Dag": "weekly_email", "Conf": {"x": "y" * 900_000}}),
        *(("f" * 100_000, request()), (b"\xff", request()), (None, request())),
    ]
    for key, value in bad:
        ask(askable, key, value, partition=0)
    ask(askable, "good", request())
    counts = run(askable)
    assert (counts.refused, counts.issued, counts.started) == (len(bad), 1, 1)
    found = list(decisions.list_all(askable))
    assert len(found) == len(bad)
    assert all(f"{askable.topic('run-requests')}[0]@" in one.why for one, _ in found)
    assert run(askable) == DispatchCounts()


def listed(settings: Settings) -> list[RunRow]:
    kafka = installed(settings).kafka
    return list_runs(kafka, list_decided(kafka, datetime.now(UTC), settings.request_days))


def test_a_request_in_the_wrong_partition_goes_to_its_own_and_is_asked_once(
    askable: Settings, airflow: AirflowServer
) -> None:
    names = {"run-requests": "wider-requests", "run-commands": "wider-commands"}
    wider = askable.model_copy(update={"partitions": 2, "topics": askable.topics | names})
    apply_topics(installed(wider))
    for partition in (0, 1):
        ask(wider, KEY, request(), partition=partition)
    counts = run(wider)
    assert (counts.forwarded, counts.issued, counts.already_running) == (1, 1, 1)
    assert len(airflow.runs) == 1


def test_topics_that_part_keys_and_commands_are_refused(askable: Settings) -> None:
    name, client = f"{askable.topic('run-commands')}-3", installed(askable).kafka.admin()
    topic = NewTopic(name, 3, 1, config={"cleanup.policy": "compact"})
    client.create_topics([topic])[name].result()
    with pytest.raises(ShardpostError, match=r"has 1 partition and .* 3, expected the same number"):
        run(askable.model_copy(update={"topics": askable.topics | {"run-commands": name}}))


def test_a_thousand_requests_of_eight_producers_over_a_hundred_keys_give_a_hundred_runs(
    askable: Settings, airflow: AirflowServer
) -> None:
    def produce(number: int) -> None:
        client = installed(askable).kafka.producer()
        for n in range(125):
            key = f"weekly_email/{(number * 125 + n) % 100}"
            client.produce(askable.topic("run-requests"), json.dumps(request()).encode(), key)
        assert client.flush(30) == 0

    with ThreadPoolExecutor(9) as pool:
        made = [pool.submit(produce, number) for number in range(8)]
        all_counts = [pool.submit(run, askable).result() for _ in range(2)]  # while they are made
        for one in made:
            one.result()
    all_counts.append(run(askable))
    assert sum(counts.issued for counts in all_counts) == 100
    assert sum(counts.already_running for counts in all_counts) == 900
    assert len(airflow.started) == len(set(airflow.started)) == 100
    assert len(commands_in_force(installed(askable).kafka)) == 100


@pytest.fixture
def command(askable: Settings) -> CommandLine:
    return CommandLineHere(askable.environ())


def asked(*more: str) -> tuple[str, ...]:
    return ("runs", "request", KEY, "--dag", "weekly_email", "--by", "anna", *more)


def status_while_dispatched(
    command: CommandLine, askable: Settings, *more: str, code: int = 0
) -> Any:
    """Send a request and wait for its status, while another dispatches."""
    watch = RequestWatch(installed(askable).kafka)
    watch.pending_ends()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(command.json, *asked("--wait", *more), code=code)
        wait_for(lambda: watch.pending_ends() is not None, "the request to be there", seconds=60)
        run(askable)
        return waiting.result()


def test_a_request_waits_for_its_status(
    command: CommandLine, askable: Settings, airflow: AirflowServer
) -> None:
    won = status_while_dispatched(command, askable)
    assert (won["fate"], won["run_id"]) == ("won", airflow.started[0])
    again = status_while_dispatched(command, askable)
    assert (again["fate"], again["run_id"]) == ("already running", airflow.started[0])
    assert (again["requested_by"], again["since"]) == ("anna", won["since"])
    conflict = status_while_dispatched(command, askable, "--conf", '{"week":"2026-W47"}', code=3)
    assert (conflict["fate"], conflict["run_id"]) == ("conflict", airflow.started[0])
    airflow.end_all()
    airflow.dags["weekly_email"] = True
    refused = status_while_dispatched(command, askable, code=3)
    assert refused["fate"] == "refused"
    assert "DAG weekly_email is paused in Airflow" in refused["why"]


def test_a_request_that_nobody_dispatches_is_reported_at_the_deadline(
    command: CommandLine, askable: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "WAIT_SECONDS", 0.1)
    line = command.refused(*asked("--wait"), code=1)
    assert f"{askable.topic('run-requests')}[0]@0 is not processed yet after 0.1 s" in line
    assert "the request remains in its topic" in line
    assert run(askable).issued == 1


def test_what_is_listed_dispatched_and_released(
    command: CommandLine, askable: Settings, airflow: AirflowServer
) -> None:
    assert command.json("runs", "list") == []
    assert command("runs", "list") == "no requested run is waiting or running\n"
    assert command(*asked()) == f"requested: {askable.topic('run-requests')}[0]@0\n"
    airflow.breaks = True
    assert "1 command is committed and not started" in command.refused("runs", "dispatch", code=1)
    airflow.breaks = False
    assert command.json("runs", "dispatch")["started"] == 1
    [row] = command.json("runs", "list")
    assert (row["key"], row["dag"], row["state"]) == (KEY, "weekly_email", "started")
    assert "started  " in command("runs", "list")
    assert "is left running" in command("runs", "release", KEY, "--why", "it hangs", "--by", "ben")
    assert command.json("runs", "list") == []
    [(decision, _)] = decisions.list_all(askable)
    assert (decision.who, decision.why) == ("ben", "it hangs")
    assert "no requested run is active under key" in command.refused(
        "runs", "release", KEY, "--why", "again", code=1
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("request", KEY, "--dag", "weekly_email", "--conf", "[1]"),
        ("request", KEY, "--dag", "weekly_email", "--conf", "{"),
        ("request", KEY, "--dag", "weekly_email", "--conf", '{"x": NaN}'),
        ("request", KEY, "--dag", "weekly_email", "--conf", '{"x": "\\ud800"}'),
        ("request", KEY, "--dag", "weekly_email", "--conf", '{"x": "' + "y" * 70_000 + '"}'),
        ("request", "k" * 70_000, "--dag", "weekly_email"),
        ("request", "", "--dag", "weekly_email"),
        ("release", KEY, "--why", " "),
    ],
)
def test_bad_usage_is_refused(command: CommandLine, arguments: tuple[str, ...]) -> None:
    assert "expected" in command.refused("runs", *arguments, code=2)


def test_the_watch_reports_what_waits_once_and_nothing_that_was_dispatched(
    askable: Settings, airflow: AirflowServer
) -> None:
    watch = RequestWatch(installed(askable).kafka)
    assert watch.pending_ends() is None
    ask(askable, KEY, request())
    assert watch.pending_ends() == {0: 1}
    assert watch.pending_ends() is None
    ask(askable, KEY, request())
    assert RequestWatch(installed(askable).kafka).pending_ends() == {
        0: 2
    }  # one that starts later sees it as well
    run(askable)
    assert watch.pending_ends() is None
    assert RequestWatch(installed(askable).kafka).pending_ends() is None
