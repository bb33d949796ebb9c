"""docker-compose.yml for real: all healthy, the story, and a week mailed while parts are killed."""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.support.docker_engine import Compose, call, find

CLIENTS = 300
WEEK_SECONDS = 600.0
ACTIVE = ("queued", "running")
ATTENTION = (0, 3)  # of commands that may have found something for a person

# In the scheduler's container, with the settings that it has.
PRODUCE = """
import sys
from shardpost.embedded.demo import contact_record, position_record, produce
from shardpost.settings import load
records = []
for number in range(int(sys.argv[1])):
    client = f"holder{number}"
    records += [contact_record(client), position_record(f"9{number:05}", client, "IBM", 1, "NYSE")]
produce(load(), records)
"""
RUN_DAG = """
import json, sys
from shardpost.run_requests.airflow_api import AirflowRunError, log_in
from shardpost.settings import load
settings = load()
with log_in(settings.airflow_url, settings.airflow_user, settings.airflow_password) as api:
    run = api.trigger(sys.argv[1], json.loads(sys.argv[2]))
    if len(sys.argv) > 3:
        try:
            api.wait(sys.argv[1], run, float(sys.argv[3]), lambda line: None)
        except AirflowRunError as error:
            sys.exit(f"{error}")
print(run)
"""
STATE = """
import sys
from shardpost.run_requests.airflow_api import log_in
from shardpost.settings import load
settings = load()
with log_in(settings.airflow_url, settings.airflow_user, settings.airflow_password) as api:
    print(api.run(sys.argv[1], sys.argv[2]).state)
"""
MAILED = """
import email, json
from collections import Counter
from email import policy
from email.utils import parseaddr
from shardpost.embedded.demo import kept_by_mailpit
mails = (email.message_from_bytes(mail, policy=policy.default) for mail in kept_by_mailpit("http://mailpit:8025")())
print(json.dumps(Counter(parseaddr(mail["To"])[1].partition("@")[0] for mail in mails)))
"""
# Quick: it imports nothing of ours.
ARRIVED = """
import json, urllib.request
with urllib.request.urlopen("http://mailpit:8025/api/v1/messages?limit=1") as answer:
    print(json.load(answer)["total"])
"""
WEEK = """
from datetime import UTC, datetime
from shardpost.weekly_email.model.week import IsoWeek
print(IsoWeek.of(datetime.now(UTC)))
"""


def mailed(system: Compose) -> Counter[str]:
    """Return {client: how many mails the mail server has for it}."""
    return Counter(json.loads(system.python("airflow-scheduler", MAILED)))


def arrived(system: Compose) -> int:
    """Return how many mails the mail server has."""
    return int(system.python("airflow-scheduler", ARRIVED))


def run_dag(system: Compose, dag: str, conf: Mapping[str, Any], seconds: float = 0) -> str:
    """Start a run, and wait for its success so long; return its id."""
    wait = (str(seconds),) if seconds else ()
    return system.python("airflow-scheduler", RUN_DAG, dag, json.dumps(conf), *wait).strip()


def ledger(system: Compose, week: str) -> dict[str, Any]:
    """Return what `shardpost emails` says of a week."""
    found: dict[str, Any] = document(system, "emails", "--week", week)
    return found


def document(system: Compose, *command: str) -> Any:
    """Return the JSON document that a command prints."""
    words = ("exec", "-T", "airflow-scheduler", "shardpost", *command, "--json")
    return json.loads(system(*words, ends=ATTENTION))


def test_all_is_healthy_and_the_story_is_told(system: Compose) -> None:
    states = system.states()
    one_shot = states.pop("airflow-init")
    assert one_shot[0] == "exited"
    assert set(states.values()) == {("running", "healthy")}, states
    compose = f"COMPOSE={find('docker-compose')}"
    said = call("make", "cluster-demo", compose, cwd=system.folder, env=system.engine.environ)
    before, after = said.split("position 3 moves to client3")
    assert "client1: 1, 3" in before
    assert sorted(re.findall(r"  To: .*<(.*)>", before)) == [
        "client1@example.com",
        "client2@example.com",
    ]
    assert "client3: 3\n" in after.split("who holds US stock")[1]
    audit = document(system, "topics", "audit")
    assert [one for one in audit if one["severity"] == "loss"] == []


def test_a_week_reaches_each_client_once_though_a_broker_and_a_worker_die(system: Compose) -> None:
    week = system.python("airflow-scheduler", WEEK).strip()
    system.python("airflow-scheduler", PRODUCE, str(CLIENTS))
    run_dag(system, "compact_positions", {}, WEEK_SECONDS)
    before = arrived(system)
    run = run_dag(system, "weekly_email", {"week": week, "early": True})
    deadline = time.monotonic() + WEEK_SECONDS
    while arrived(system) < before + CLIENTS // 10:
        assert time.monotonic() < deadline, "no mails arrive"
        time.sleep(1)
    system.engine.docker("kill", "shardpost-kafka-2-1")  # stays away
    system.kill_process("spark-worker-2")  # comes again
    assert arrived(system) < before + CLIENTS, "all were mailed before anything was killed"
    while system.python("airflow-scheduler", STATE, "weekly_email", run).strip() in ACTIVE:
        assert time.monotonic() < deadline, f"{run} does not end"
        time.sleep(2)
    system("up", "-d", "--wait")
    if sum(one["open"] for one in ledger(system, week)["shards"]):  # of a task that failed for good
        run_dag(system, "weekly_email", {"week": week, "early": True}, WEEK_SECONDS)
    found, unknown = mailed(system), set(ledger(system, week)["unknown"])
    everybody = {f"holder{number}" for number in range(CLIENTS)}
    assert {client for client, times in found.items() if times > 1} == set()
    assert everybody - found.keys() <= unknown
    assert len(unknown) <= 4 * 8  # a shard's open connections
