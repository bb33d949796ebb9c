"""The embedded broker as a process that tests kill."""

import json
import os
import signal

from shardpost.embedded import ports
from shardpost.embedded.process import stat_of
from shardpost.settings import Settings
from tests.job_process import wait_for


def kill_broker(settings: Settings) -> None:
    """SIGKILL the broker, and wait until its port is free."""
    pid = json.loads((settings.home / "kafka" / "kafka.pid").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: stat_of(pid) is None, "the broker's end")
    wait_for(lambda: ports.is_free(settings.kafka_port), "its port")
