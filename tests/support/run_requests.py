"""Sending run requests, dispatching, and what the topics hold then."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from shardpost.run_requests import request_topics
from shardpost.run_requests.dispatch import dispatch
from shardpost.run_requests.model.commands import CommandEntry, DispatchCounts
from shardpost.settings import Settings
from tests.support import decisions
from tests.support.installed import installed
from tests.support.job_process import wait_for

KEY = "weekly_email/2026-W47"
# The steps of a dispatch, in order: before each of them it is killed or halted.
STEPS = (
    "fence",
    "read commands",
    "see ends",
    "read requests",
    "commit commands",
    "commit releases",
    "start",
    "started",
    "commit started",
)
_CLIENTS: dict[str, Producer] = {}


def ask(settings: Settings, key: str | bytes | None, value: object, **more: Any) -> None:
    """Put a record into run-requests; bytes and None go as they are."""
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    if settings.bootstrap not in _CLIENTS:
        _CLIENTS[settings.bootstrap] = installed(settings).kafka.producer()
    client = _CLIENTS[settings.bootstrap]
    client.produce(settings.topic("run-requests"), raw, key, **more)
    assert client.flush(30) == 0


def request(
    conf: dict[str, Any] | None = None, dag: str = "weekly_email", by: str = "anna"
) -> dict[str, Any]:
    return {"Dag": dag, "Conf": conf or {}, "RequestedBy": by}


def run(settings: Settings) -> DispatchCounts:
    return dispatch(installed(settings), datetime.now(UTC))


def history(settings: Settings) -> list[CommandEntry]:
    return [
        entry
        for partition in range(request_topics.partitions(installed(settings).kafka))
        for entry in request_topics.command_entries(installed(settings).kafka, partition)
    ]


def decided(settings: Settings) -> list[tuple[str, str]]:
    return sorted((str(one.kind), one.about.decode()) for one, _ in decisions.list_all(settings))


PAUSING = Path(__file__).with_name("pausing_dispatch.py")


class Dispatch:
    """A process that dispatches, and stops itself at a step."""

    def __init__(self, settings: Settings, step: str) -> None:
        others = {n: text for n, text in os.environ.items() if not n.startswith("SHARDPOST_")}
        self._process = subprocess.Popen(
            [sys.executable, str(PAUSING), step],
            env=others | settings.environ(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(self._paused, f"a dispatch to stop itself at {step}", seconds=60)

    def _paused(self) -> bool:
        assert self._process.poll() is None, self._process.communicate()
        return bool(psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)

    def resume(self) -> tuple[int, str]:
        """Let it go on to its end; return its exit code and what it said."""
        psutil.Process(self._process.pid).resume()
        _, said = self._process.communicate(timeout=180)
        return self._process.returncode, said
