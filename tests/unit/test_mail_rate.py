"""The rate of mails: one for all jobs that send, in a folder or on a store."""

from collections.abc import Iterator

import pytest

from shardpost.locks.locks import LockedError
from shardpost.settings import Settings
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


def test_without_a_rate_nobody_waits(settings: Settings) -> None:
    own = installed(settings.model_copy(update={"mail_rate": None}))
    with share_of_rate(own, 0) as first, share_of_rate(own, 0) as second:
        assert (first, second) == (None, None)
