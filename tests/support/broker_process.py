"""A broker that a test has to itself, and may kill."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardpost.embedded import broker, daemons
from shardpost.embedded.daemons import stat_of
from shardpost.settings import Settings, load
from shardpost.topics.creation import apply_topics
from tests.conftest import environ
from tests.support.job_process import wait_for


@contextmanager
def own_broker(home: Path, **given: object) -> Iterator[Settings]:
    """Give settings of a broker that nobody else uses, with all topics."""
    settings = load(environ(home=home, kafka_port=daemons.choose_port(), kafka_timeout=30, **given))
    broker.start(settings)
    apply_topics(settings)
    yield settings
    broker.stop(settings)


def kill_broker(settings: Settings) -> None:
    """SIGKILL the broker, and wait until its port is free."""
    pid = json.loads((settings.home / "kafka" / "kafka.pid").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stat_of(pid) is None, "the broker's end")
    wait_for(lambda: daemons.port_is_free(settings.kafka_port), "its port")
