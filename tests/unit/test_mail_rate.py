"""The rate of mails: one for all jobs that send, in a folder or on a store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from shardpost.locks.locks import LockedError
from shardpost.settings import Settings
from shardpost.weekly_email import email_run
from shardpost.weekly_email.email_run import share_of_rate
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


def test_jobs_that_send_at_once_have_no_more_than_the_rate(settings: Settings) -> None:
    own = installed(settings)
    with share_of_rate(own, 0) as whole:
        assert whole == 20
        with pytest.raises(LockedError, match="a send at a rate is already running"):
            share_of_rate(own, 0, 1).__enter__()
    with share_of_rate(own, 0, 1) as half:
        assert half == 10
        with share_of_rate(own, 0) as other:  # of a command, beside a task
            assert other == 10
            with pytest.raises(LockedError):
                share_of_rate(own, 0, 1).__enter__()
        with share_of_rate(own, 0, 1) as again:
            assert again == 10
    with share_of_rate(own, 0) as whole:
        assert whole == 20


def test_who_waits_gets_whichever_share_is_free_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(email_run, "TURN_SECONDS", 0.1)
    own = installed(settings)

    def wait() -> float | None:
        with share_of_rate(own, 120) as rate:
            return rate

    with ThreadPoolExecutor(1) as pool, share_of_rate(own, 0, 1), ExitStack() as second:
        second.enter_context(share_of_rate(own, 0, 1))
        waiting = pool.submit(wait)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        second.close()
        assert waiting.result(100) == 10


def test_without_a_rate_nobody_waits(settings: Settings) -> None:
    own = installed(settings.model_copy(update={"mail_rate": None}))
    with share_of_rate(own, 0) as first, share_of_rate(own, 0) as second:
        assert (first, second) == (None, None)
