"""Asking for runs, dispatching, and what the topics say then."""

import json
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer

from shardpost.adapters import decisions, run_topics
from shardpost.adapters.kafka import producer
from shardpost.dispatching.dispatch import dispatch
from shardpost.dispatching.tally import Tally
from shardpost.domain.run_commands import Entry
from shardpost.settings import Settings

KEY = "weekly_email/2026-W47"
_CLIENTS: dict[str, Producer] = {}


def ask(settings: Settings, key: str | bytes | None, value: object, **more: Any) -> None:
    """Put a record into run-requests; bytes and None go as they are."""
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    if settings.bootstrap not in _CLIENTS:
        _CLIENTS[settings.bootstrap] = producer(settings)
    client = _CLIENTS[settings.bootstrap]
    client.produce(settings.topic_run_requests, raw, key, **more)
    assert client.flush(30) == 0


def request(
    conf: dict[str, Any] | None = None, dag: str = "weekly_email", by: str = "anna"
) -> dict[str, Any]:
    return {"Dag": dag, "Conf": conf or {}, "RequestedBy": by}


def run(settings: Settings) -> Tally:
    return dispatch(settings, datetime.now(UTC))


def history(settings: Settings) -> list[Entry]:
    return [
        entry
        for partition in range(run_topics.partitions(settings))
        for entry in run_topics.command_entries(settings, partition)
    ]


def decided(settings: Settings) -> list[tuple[str, str]]:
    return sorted((str(one.kind), one.about.decode()) for one, _ in decisions.every(settings))


def why(settings: Settings) -> str:
    [(one, _)] = decisions.every(settings)
    return one.why
