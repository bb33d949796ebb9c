"""The rate of mails: one for all jobs that send, in a folder or on a store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from shardpost.locks.locks import LockedError
from shardpost.settings import Settings
from shardpost.weekly_email.email_run import at_rate
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_store import memory_store


@pytest.fixture(params=["folder", "store"])
def settings(request: pytest.FixtureRequest, kafka: MemoryKafka) -> Iterator[Settings]:
    """Give settings with a rate of 20 a second."""
    more = {"mail_rate": 20.0}
    if request.param == "folder":
        yield kafka.settings.model_copy(update=more)
        return
    with memory_store(kafka.settings) as stored:
        yield stored.model_copy(update=more)


def test_with_a_rate_one_job_sends_at_a_time(settings: Settings) -> None:
    own = installed(settings)
    refused = pytest.raises(LockedError, match="a send at a rate is already running")
    with at_rate(own, 0), refused:
        at_rate(own, 0).__enter__()
    with at_rate(own, 0):
        pass


def test_who_waits_has_its_turn_when_the_other_has_sent(settings: Settings) -> None:
    own = installed(settings)

    def wait() -> bool:
        with at_rate(own, 120):
            return True

    with ThreadPoolExecutor(1) as pool, ExitStack() as first:
        first.enter_context(at_rate(own, 0))
        waiting = pool.submit(wait)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        first.close()
        assert waiting.result(100)


def test_without_a_rate_nobody_waits(settings: Settings) -> None:
    own = installed(settings.model_copy(update={"mail_rate": None}))
    with at_rate(own, 0), at_rate(own, 0):
        pass
