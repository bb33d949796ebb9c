"""Who holds, from nothing and after some more: Shardpost beside a Kafka Streams application."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from bench import kafka, peer, stream
from bench.measured import Measured
from bench.ours import Ours, steps
from bench.peer import Peer
from bench.table import Case, markdown
from shardpost.settings import Settings

# What warm_compactions.py prints.
WARM = re.compile(r"^warm compaction \d+: (\S+) s$", re.MULTILINE)


@dataclass(frozen=True)
class Contender:
    """Who does the job: start from nothing, catch up, and the topic of its results."""

    name: str
    reset: Callable[[], None]
    catch_up: Callable[[], Measured]
    output: str


@dataclass(frozen=True)
class Sizes:
    """Records at first, how many more come each time, how often each is measured."""

    records: int
    more: int
    runs: int


def measure(settings: Settings, peer_folder: Path | None, sizes: Sizes) -> None:
    """Measure all in turn, so many times, check every result, and print the table."""
    topic = f"positions-{sizes.records}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    print(f"putting {sizes.records:,} records into {topic}", flush=True)
    kafka.produce(settings, topic, stream.records(sizes.records))
    Ours(settings, "ours-warm-up", "warm-up").warm_up()
    contenders = _contenders(settings, peer_folder, topic)
    floor = Case("floor: a plain consumer reads it all", sizes.records)
    full = _from_nothing(settings, topic, sizes, contenders, floor)
    warm = _warm(settings, topic, sizes)
    floors = _spark_floors(settings, topic, sizes)
    increments = _more(settings, topic, sizes, contenders)
    killed = _after_a_kill(settings, topic, sizes, contenders)
    one = _one_client(settings, topic, sizes)
    rows = [case.cells(full[1:2]) for case in (*full, warm)]
    rows += [case.cells(full[1:2]) for case in floors]
    rows += [case.cells(increments[1:2]) for case in (*increments, killed)]
    print("\n" + markdown([*rows, floor.cells([]), one.cells([])]))
    for case in (full[0], increments[0]):
        _explain(case)


def _contenders(settings: Settings, folder: Path | None, topic: str) -> list[Contender]:
    ours = Ours(settings, f"ours-{topic}", topic)
    output = ours.settings.topic("share-holders")
    found = [Contender("Shardpost", ours.reset, ours.compact, output)]
    if there := Peer.found(folder, settings):
        for app, options in (("defaults", peer.DEFAULTS), ("tuned", peer.TUNED)):
            application = peer.Application(there, app, topic, options)
            name = f"Kafka Streams, {app}"
            found.append(
                Contender(name, application.reset, application.catch_up, application.output)
            )
    return found


def _from_nothing(
    settings: Settings, topic: str, sizes: Sizes, contenders: list[Contender], floor: Case
) -> list[Case]:
    cases = [Case(f"{one.name}, from nothing", sizes.records) for one in contenders]
    for number in range(sizes.runs):
        print(f"from nothing, run {number + 1} of {sizes.runs}", flush=True)
        began = time.perf_counter()
        kafka.read_raw(settings, topic)
        floor.runs.append(Measured(time.perf_counter() - began, {}, ""))
        for case, one in zip(cases, contenders, strict=True):
            one.reset()
            case.add(one.catch_up())
        _check(settings, sizes.records, 0, contenders)
    return cases


def _warm(settings: Settings, topic: str, sizes: Sizes) -> Case:
    """Measure the same in one driver, which has done it once before."""
    case = Case("Shardpost, from nothing, in a warm driver", sizes.records)
    done = Ours(settings, f"ours-{topic}", topic).script("warm_compactions", str(sizes.runs + 1))
    for seconds in WARM.findall(done.log)[1:]:
        case.add(replace(done, seconds=float(seconds)))
    return case


def _spark_floors(settings: Settings, topic: str, sizes: Sizes) -> list[Case]:
    jobs = {
        "raw_copy": Case("floor: Spark copies it all into Parquet files", sizes.records),
        "least_job": Case("floor: the least Spark job with the same holders", sizes.records),
    }
    ours = Ours(settings, f"ours-{topic}", topic)
    for _ in range(sizes.runs):
        for job, case in jobs.items():
            case.add(ours.floor(job))
    files = ours.settings.home / "least_job-holders"
    require(stream.holders(stream.records(sizes.records)), _grouped(files), "the least Spark job")
    return list(jobs.values())


def _grouped(files: Path) -> dict[str, list[int]]:
    rows = pq.read_table(files).to_pylist()
    return {row["Client"]: sorted(map(int, row["positions"])) for row in rows}


def _more(settings: Settings, topic: str, sizes: Sizes, contenders: list[Contender]) -> list[Case]:
    cases = [Case(f"{one.name}, {sizes.more:,} more", sizes.more) for one in contenders]
    for number in range(sizes.runs):
        print(f"{sizes.more:,} more, run {number + 1} of {sizes.runs}", flush=True)
        there, then = number * sizes.more, (number + 1) * sizes.more
        more = stream.records(sizes.records, sizes.records + there, then)
        kafka.produce(settings, topic, more)
        for case, one in zip(cases, contenders, strict=True):
            case.add(one.catch_up())
        _check(settings, sizes.records, then, contenders)
    return cases


def _after_a_kill(
    settings: Settings, topic: str, sizes: Sizes, contenders: list[Contender]
) -> Case:
    """Measure how long the next compaction takes after one that ended by SIGKILL."""
    case = Case(f"Shardpost, {sizes.more:,} more, after a kill -9", sizes.more)
    ours = Ours(settings, f"ours-{topic}", topic)
    for number in range(sizes.runs, 2 * sizes.runs):
        there, then = number * sizes.more, (number + 1) * sizes.more
        more = stream.records(sizes.records, sizes.records + there, then)
        kafka.produce(settings, topic, more)
        ours.compact_killed()
        case.add(ours.compact())
    _check(settings, sizes.records, 2 * sizes.runs * sizes.more, contenders[:1])
    return case


def _one_client(settings: Settings, topic: str, sizes: Sizes) -> Case:
    """Measure `holders CLIENT`, from the shell."""
    case = Case("Shardpost, `holders CLIENT`", 1)
    ours = Ours(settings, f"ours-{topic}", topic)
    for _ in range(sizes.runs):
        case.add(ours.command("holders", "C000001"))
    return case


def _check(settings: Settings, size: int, more: int, contenders: list[Contender]) -> None:
    """Hold every result against the plain fold."""
    expected = stream.holders(stream.records(size, more=more))
    for one in contenders:
        require(expected, kafka.latest(settings, one.output), one.name)
    print(f"  {len(expected):,} holders, exact in all", flush=True)


def require(expected: dict[str, list[int]], found: dict[str, list[int]], name: str) -> None:
    """Refuse holders that are not those expected."""
    if found != expected:
        wrong = sum(found.get(c) != expected.get(c) for c in found.keys() | expected.keys())
        raise RuntimeError(f"{name}: {wrong} of {len(expected)} clients differ")


def _explain(case: Case) -> None:
    last = case.runs[-1]
    shares = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in steps(last.log))
    print(f"\n{case.name}, the last run: {last.seconds:.1f} s, of which: {shares}")
    print("peak MiB: " + ", ".join(f"{name} {peak}" for name, peak in last.peaks.items()))
