"""One rate of mails for whatever sends: a backfill, and a command beside it."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from shardpost.embedded import daemons
from tests.conftest import environ
from tests.e2e.conftest import UNSCHEDULED, client_of, processes_of
from tests.support.backfills import backfill
from tests.support.command_line import CommandLine
from tests.support.job_process import wait_for
from tests.support.reference import Raw, position, produce

DEADLINE_SECONDS = 600
RATE = 2
# A week is sent for longer than a command takes to begin, and in a window two weeks at once would
# be more mails than the assertion allows.
WINDOW = timedelta(seconds=10)
CLIENTS = [f"client{number}" for number in range(60)]
MONDAYS = [datetime(2025, 9, 1, tzinfo=UTC) + timedelta(weeks=nth) for nth in range(2)]


def contact(client: str) -> Raw:
    form = {"Client": client, "Email": f"{client}@example.com", "Subscribed": True}
    return Raw("clients", client.encode(), json.dumps(form).encode())


def arrivals(mail: Path) -> list[datetime]:
    """Return when the sink took each mail, by the names of its files."""
    names = (file.name.partition("-")[0] for file in mail.glob("*.eml"))
    return sorted(datetime.fromisoformat(f"{name}+00:00") for name in names)


def most_in(window: timedelta, times: Sequence[datetime]) -> int:
    """Return how many of ascending times are in a window, at most."""
    first = most = 0
    for last, time in enumerate(times):
        first = next(nth for nth in count(first) if time - times[nth] < window)
        most = max(most, last - first + 1)
    return most


@pytest.mark.one_of("whole systems")
@pytest.mark.timeout(DEADLINE_SECONDS + 300)
def test_a_backfill_and_a_command_beside_it_keep_one_rate(tmp_path: Path) -> None:
    free = {f"{part}_port": daemons.choose_port() for part in ("kafka", "smtp", "airflow")}
    stack = CommandLine(environ(home=tmp_path, mail_rate=RATE, partitions=2, **UNSCHEDULED, **free))
    week, another = MONDAYS
    mail = tmp_path / "mail"

    def mail_beside() -> None:
        wait_for(lambda: arrivals(mail) != [], "the first mail", seconds=DEADLINE_SECONDS)
        stack("email", "--week", f"{another:%G-W%V}")

    try:
        stack("up")
        since = int(MONDAYS[0].timestamp() * 1000)
        produce(stack.settings, [contact(client) for client in CLIENTS])
        held = [position(one, one, "NASDAQ", timestamp_ms=since) for one in CLIENTS]
        produce(stack.settings, held)
        stack("compact")
        with client_of(stack.settings) as api, ThreadPoolExecutor() as beside:
            mailed = beside.submit(mail_beside)
            day, end = (f"{at:%Y-%m-%d}" for at in (week, week + timedelta(weeks=1)))
            backfill(stack, api, day, day, end, seconds=DEADLINE_SECONDS)
            mailed.result()
    finally:
        stack("down")
    assert processes_of(tmp_path) == []
    times = arrivals(mail)
    assert len(times) == len(MONDAYS) * len(CLIENTS)
    # Beyond the rate: what a job may send at once when it begins, and what waits in a slow sink.
    assert most_in(WINDOW, times) <= 1.25 * RATE * WINDOW.total_seconds()
