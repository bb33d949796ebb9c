"""How the time of a compaction grows: with the records, with the positions, with an increment."""

from collections.abc import Sequence
from pathlib import Path

from bench import kafka, stream
from bench.ours import Ours
from bench.picture import Curve, draw
from shardpost.settings import Settings

RECORDS = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
BASE = 1_000_000
INCREMENTS = (1_000, 10_000, 100_000, 1_000_000)


def measure(settings: Settings, picture: Path, scale: float) -> None:
    """Measure both curves, sizes times `scale`; print them with exponents, and draw them."""
    sizes = [int(size * scale) for size in RECORDS]
    increments = [int(size * scale) for size in INCREMENTS]
    full = Curve(
        "from nothing: records (a fifth as many positions)", _from_nothing(settings, sizes)
    )
    name = f"more records, on {int(BASE * scale):,}"
    more = Curve(name, _increments(settings, int(BASE * scale), increments))
    for curve in (full, more):
        print(f"\n{curve.name}: time grows with size to the power of {curve.exponent:.2f}")
        print("\n".join(f"  {size:>12,}  {seconds:7.1f} s" for size, seconds in curve.points))
    picture.write_text(draw([full, more]))
    print(f"\ndrawn: {picture}")


def _from_nothing(settings: Settings, sizes: Sequence[int]) -> list[tuple[int, float]]:
    points = []
    for size in sizes:
        ours = _fresh(settings, size)
        found = ours.compact()
        print(f"  {size:,} from nothing: {found.seconds:.1f} s, peak {found.peak} MiB", flush=True)
        points.append((size, found.seconds))
    return points


def _increments(
    settings: Settings, base: int, increments: Sequence[int]
) -> list[tuple[int, float]]:
    ours, there, points = _fresh(settings, base), 0, []
    ours.compact()
    for size in increments:
        more = stream.records(base, base + there, there + size)
        kafka.produce(settings, ours.settings.topic("positions"), more)
        there += size
        found = ours.compact()
        print(f"  {size:,} more: {found.seconds:.1f} s, peak {found.peak} MiB", flush=True)
        points.append((size, found.seconds))
    expected = stream.holders(stream.records(base, more=there))
    if kafka.latest(settings, ours.settings.topic("share-holders")) != expected:
        raise RuntimeError("the holders are not what a plain fold makes of the same records")
    return points


def _fresh(settings: Settings, size: int) -> Ours:
    topic = f"growth-{size}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    kafka.produce(settings, topic, stream.records(size))
    ours = Ours(settings, f"ours-{topic}", topic)
    ours.reset()
    return ours
