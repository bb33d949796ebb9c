"""The rate of mails, which is one for all senders: turns, whoever takes them."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from shardpost.locks.shared_files import Files
from shardpost.settings import Settings
from shardpost.weekly_email.shared_rate import SharedRate
from tests.support.how_far import up_to
from tests.support.installed import installed
from tests.support.memory_kafka import MemoryKafka
from tests.support.memory_store import memory_store

Machines = list[Settings]
RATE = 20.0


@pytest.fixture(params=["folder", "store"])
def machines(
    request: pytest.FixtureRequest, kafka: MemoryKafka, tmp_path: Path
) -> Iterator[Machines]:
    """Give the settings of processes of one installation; on a store, of two machines."""
    if request.param == "folder":
        yield [kafka.settings, kafka.settings]
        return
    with memory_store(kafka.settings) as first:
        yield [first, first.model_copy(update={"home": tmp_path / "second"})]


def files_of(machines: Machines) -> list[Files]:
    return [installed(settings).files for settings in machines]


@pytest.mark.parametrize("seed", range(up_to(20, quick=4)))
def test_senders_that_come_and_go_send_no_more_than_the_rate(machines: Machines, seed: int) -> None:
    draw, now = Random(seed), [1000.0]  # noqa: S311 - the same each time
    files, sent = files_of(machines), list[tuple[float, int]]()

    def sender(number: int) -> SharedRate:
        return SharedRate(files[number % len(files)], RATE, lambda: now[0])

    senders = [sender(number) for number in range(4)]
    waits: dict[int, int] = {}  # {sender: mails that it wants to send together}
    for _ in range(200):
        number = draw.randrange(len(senders))
        if number in waits:
            if senders[number].delay() == 0:
                senders[number].spend(waits[number])
                sent.append((now[0], waits.pop(number)))
        elif draw.random() < 0.1:  # it ended, perhaps with mails left of its turn
            senders[number] = sender(number)
        else:
            waits[number] = draw.randint(1, int(senders[number].most))
        now[0] += draw.choice((0.0, 0.01, 0.1, 0.6))
    assert sum(mails for _, mails in sent) > 50
    for first, (begin, _) in enumerate(sent):
        for last in range(first, len(sent)):
            seconds = sent[last][0] - begin
            mails = sum(mails for _, mails in sent[first : last + 1])
            # Each sender may have one turn, of half a second, that began before.
            assert mails <= RATE * (seconds + 0.5 * (len(senders) + 1))


def test_turns_that_are_taken_at_the_same_time_are_one_after_the_other(machines: Machines) -> None:
    files = files_of(machines)

    def delays(number: int) -> list[float]:
        rate, found = SharedRate(files[number % len(files)], RATE, lambda: 1000.0), []
        for _ in range(5):
            found.append(rate.delay())
            rate.spend(int(rate.most))
        return found

    with ThreadPoolExecutor(4) as pool:
        found = sorted(delay for own in pool.map(delays, range(4)) for delay in own)
    assert found == pytest.approx([0.5 * number for number in range(20)])


def test_without_a_rate_nobody_waits_and_nothing_is_written(kafka: MemoryKafka) -> None:
    rate = SharedRate(installed(kafka.settings).files, None)
    for _ in range(3):
        assert (rate.most, rate.delay()) == (float("inf"), 0)
        rate.spend(4)
    assert not (kafka.settings.home / "mail-rate.json").exists()


@pytest.mark.parametrize(
    ("rate", "mails", "apart"), [(0.01, 1, 100.0), (1.0, 1, 1.0), (3.0, 2, 2 / 3), (1e9, 5e8, 0.5)]
)
def test_a_turn_is_half_a_second_or_a_mail(
    kafka: MemoryKafka, rate: float, mails: float, apart: float
) -> None:
    files = installed(kafka.settings).files
    first, second = (SharedRate(files, rate, lambda: 1000.0) for _ in range(2))
    assert (first.most, first.delay()) == (mails, 0)
    assert second.delay() == pytest.approx(apart)


@pytest.mark.parametrize("text", ["", "put back"])
def test_what_was_written_by_a_clock_that_was_ahead_or_a_killed_writer_holds_nobody(
    kafka: MemoryKafka, text: str
) -> None:
    files = installed(kafka.settings).files
    now: Callable[[], float] = lambda: 1000.0  # noqa: E731
    ahead = SharedRate(files, RATE, lambda: 1_000_000.0)
    ahead.delay()
    if not text:
        (kafka.settings.home / "mail-rate.json").write_text(text)
    assert SharedRate(files, RATE, now).delay() == 0
