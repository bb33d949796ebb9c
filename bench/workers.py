"""Who holds, from nothing, on one worker of a Spark cluster and on more: what divides, what not.

A step divides as far as its tasks do: the driver's own share of it is when none of them runs.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from bench import kafka, stream
from bench.ours import Ours, parts
from bench.spark_tasks import by_part, with_event_log
from shardpost.settings import Settings
from tests.support.spark_cluster import spark_cluster

LOOPBACK = "127.0.0.1"
PROPERTIES = (
    f"spark.driver.host {LOOPBACK}",
    f"spark.driver.bindAddress {LOOPBACK}",
    "spark.executor.cores 1",
    "spark.executor.memory 1500m",
)
DRIVER = "without a task: "


def measure(settings: Settings, records: int, workers: Sequence[int], runs: int) -> None:
    """Compact the same records on so many workers of one core, in turn; print what divides.

    Every result is compared with the plain fold.
    """
    topic = f"workers-{records}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    print(f"putting {records:,} records into {topic}", flush=True)
    kafka.produce(settings, topic, stream.records(records))
    expected = stream.holders(stream.records(records))
    found: dict[int, list[Mapping[str, float]]] = {count: [] for count in workers}
    hosts = [LOOPBACK] * max(workers)
    with spark_cluster(settings.folder("cluster"), LOOPBACK, hosts, memory="1500m") as cluster:
        on_cluster = settings.model_copy(update={"spark_master": cluster.master})
        for number in range(runs):
            for count, seconds in found.items():
                seconds.append(_compacted(on_cluster, topic, count, expected))
                print(f"{count} workers, run {number + 1}: {seconds[-1]['all']:.1f} s", flush=True)
    _print({count: _medians(seconds) for count, seconds in found.items()})


def _compacted(
    settings: Settings, topic: str, workers: int, expected: dict[str, list[int]]
) -> Mapping[str, float]:
    """Compact from nothing with so many workers; return the seconds of each step, and of all."""
    own = with_event_log(settings, *PROPERTIES, f"spark.cores.max {workers}")
    ours = Ours(own, f"ours-{topic}", topic)
    ours.reset()
    done = ours.compact()
    if kafka.latest(settings, ours.settings.topic("share-holders")) != expected:
        raise RuntimeError(f"{workers} workers: holders differ from the plain fold")
    found, uses = parts(done.log), by_part(own, done.log)
    alone = {f"{DRIVER}{name}": found[name] - use.busy for name, use in uses.items()}
    rest = {"start, end": done.seconds - sum(found.values()), "all": done.seconds}
    tasks = {
        "tasks, all together": sum(use.seconds for use in uses.values()),
        "tasks, processor": sum(use.processor for use in uses.values()),
        "command, processor": done.processor,
    }
    return found | rest | alone | tasks


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run.get(name, 0.0) for run in runs) for name in runs[0]}


def _print(found: Mapping[int, Mapping[str, float]]) -> None:
    first, *others = found
    print(f"\n| step | {first} worker, s |" + "".join(f" {n} workers, s | ratio |" for n in others))
    print("| --- |" + " --- |" * (1 + 2 * len(others)))
    for name, alone in found[first].items():
        each = [found[n].get(name, 0.0) for n in others]
        cells = (f" {seconds:.1f} | {seconds / max(alone, 0.1):.2f} |" for seconds in each)
        print(f"| {name} | {alone:.1f} |" + "".join(cells))
