"""A week that leaves a real ledger is never mailed again, by a real conversation with a server."""

import os
import signal
import subprocess
import sys

import pytest

from shardpost.settings import Settings
from shardpost.weekly_email.ledger_topic import ShardLedger
from shardpost.weekly_email.week_retention import close_old_weeks
from shardpost.weekly_email.week_state import WeekState
from tests.broker.test_sending import (
    CLIENTS,
    SHARD,
    each_once,
    on_broker,
    only,
    quick,
    run,
    to,
)
from tests.support.closing import LATER, make_old
from tests.support.how_far import some
from tests.support.installed import installed
from tests.support.mail_server import DROP, mail_server
from tests.support.members import WEEK

__all__ = ["on_broker"]

STEPS = (
    f"close {WEEK} shard {SHARD}",
    f"close {WEEK} shard {SHARD + 1}",
    f"record {WEEK}",
    f"empty {WEEK} shard {SHARD}",
    f"empty {WEEK} shard {SHARD + 1}",
    f"finish {WEEK}",
)


def killed_at(settings: Settings, step: str) -> None:
    command = [sys.executable, "-m", "tests.support.closing", step]
    done = subprocess.run(
        command, env=os.environ | settings.environ(), capture_output=True, check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize("step", some(STEPS))
def test_killed_at_any_step_nobody_is_mailed_again_and_the_next_run_finishes(
    on_broker: Settings, step: str
) -> None:
    make_old(on_broker, WEEK, CLIENTS)
    with mail_server() as server:
        run(on_broker, server)
        assert each_once(server)
        killed_at(on_broker, step)
        run(on_broker, server)
        assert each_once(server)
        result = close_old_weeks(installed(on_broker), LATER)
        assert (result.weeks, result.postponed) == ([str(WEEK)], {})
        assert ShardLedger(installed(on_broker).kafka, WEEK, SHARD).keys() == []
        after = run(on_broker, server)
        assert f"{WEEK} was closed on" in str(after.error)
        assert each_once(server)
    assert WeekState(installed(on_broker), WEEK).why_incomplete() is None


def test_a_sender_that_began_before_the_week_was_closed_says_nothing_more(
    on_broker: Settings,
) -> None:
    make_old(on_broker, WEEK, CLIENTS)
    closed: list[list[str]] = []

    def script(stage: str, recipient: str) -> None:
        if (stage, recipient) == ("RCPT", to("client3")) and not closed:
            closed.append(close_old_weeks(installed(on_broker), LATER).weeks)

    own = quick(on_broker, mail_connections=1, smtp_timeout=60.0)
    with mail_server(script) as server:
        report = run(own, server)
        assert closed == [[str(WEEK)]]
        assert "a newer run has taken over" in str(report.error)
        # client3 only if the close took less than two seconds.
        assert each_once(server, CLIENTS[:3]) or each_once(server, CLIENTS[:4])
        taken = dict(server.taken)
        assert "was closed on" in str(run(own, server).error)
        assert server.taken == taken


def test_whom_the_server_lost_is_not_mailed_after_the_close_either(on_broker: Settings) -> None:
    make_old(on_broker, WEEK, CLIENTS)
    with mail_server(only("client3", "end", DROP)) as server:
        run(on_broker, server)
        close_old_weeks(installed(on_broker), LATER)
        assert "was closed on" in str(run(on_broker, server).error)
    assert server.taken[to("client3")] == 0
