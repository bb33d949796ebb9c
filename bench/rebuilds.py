"""What a rebuild costs: beside a compaction of the same records from Kafka, and an increment."""

from statistics import median

from bench import kafka, stream
from bench.measured import Measured
from bench.ours import Ours
from shardpost.settings import Settings

MORE = 10_000


def measure(settings: Settings, size: int, runs: int) -> None:
    """Measure all in turn, so many times; print a line for each, with its ratio."""
    topic = f"rebuilds-{size}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    kafka.produce(settings, topic, stream.records(size))
    Ours(settings, "ours-warm-up", "warm-up").warm_up()
    ours = Ours(settings, f"ours-{topic}", topic)
    found: dict[str, list[float]] = {}

    def note(name: str, done: Measured) -> None:
        found.setdefault(name, []).append(done.seconds)
        print(f"  {name}: {done.seconds:.1f} s, peak {done.peak} MiB", flush=True)

    there = 0
    for _ in range(runs):
        ours.reset()
        note(FROM_KAFKA, ours.compact())
        there = _more(settings, topic, size, there)
        note(INCREMENT, ours.compact())
        note(FROM_HISTORY, ours.command("rebuild", "start"))
        note(DIFF, ours.command("rebuild", "diff"))
        note(SWAP, ours.command("rebuild", "swap"))
        there = _more(settings, topic, size, there)
        note(INCREMENT_BESIDE, ours.compact())
        note(ROLLBACK, ours.command("rebuild", "rollback"))
        there = _more(settings, topic, size, there)
        note(INCREMENT_BESIDE, ours.compact())
        note(SWAP_BEHIND, ours.command("rebuild", "swap"))
    middle = {name: median(seconds) for name, seconds in found.items()}
    print(f"\n| {size:,} records, {size // 5:,} positions | median seconds | ratio |")
    print("| --- | --- | --- |")
    for name, seconds in middle.items():
        to = FROM_KAFKA if name in (FROM_HISTORY, FROM_KAFKA) else INCREMENT
        print(f"| {name} | {seconds:.1f} | {seconds / middle[to]:.2f} of {to} |")


FROM_KAFKA = "compaction from Kafka"
FROM_HISTORY = "rebuild from history"
INCREMENT = f"increment of {MORE:,}"
INCREMENT_BESIDE = f"increment of {MORE:,} beside"
DIFF = "diff"
SWAP = "swap, topped up"
ROLLBACK = f"rollback, {MORE:,} behind"
SWAP_BEHIND = f"swap, {MORE:,} behind"


def _more(settings: Settings, topic: str, size: int, there: int) -> int:
    kafka.produce(settings, topic, stream.records(size, size + there, there + MORE))
    return there + MORE
