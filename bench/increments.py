"""What an increment costs beside what is there: seconds, and bytes written to the tables."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench import kafka
from bench.ours import Ours, steps
from bench.stream import START_MS, Record
from shardpost.settings import Settings

CLIENT_HAS = 10
EXCHANGES = ("NASDAQ", "NYSE", "AMEX", "LON", "PAR", "FRA", "TYO", "HKG", "TOR", "SYD")


def measure(settings: Settings, sizes: Sequence[int], more: int, runs: int) -> None:
    """Measure increments of `more` records on so many positions; print a line for each size."""
    Ours(settings, "ours-warm-up", "warm-up").warm_up()
    found = {size: _increments(settings, size, more, runs) for size in sizes}
    first = median(seconds for seconds, _ in found[sizes[0]])
    print(f"\n{more:,} more on so many positions: median seconds, ratio, bytes by those of history")
    for size, costs in found.items():
        middle = median(seconds for seconds, _ in costs)
        written = median(bytes_ for _, bytes_ in costs)
        print(f"  {size:>12,}  {middle:6.1f} s  {middle / first:5.2f}  {written:5.2f}")


def _increments(settings: Settings, size: int, more: int, runs: int) -> list[tuple[float, float]]:
    topic = f"increments-{size}"
    kafka.delete(settings, [topic])
    kafka.create(settings, topic)
    kafka.produce(settings, topic, position_records(range(size)))
    ours = Ours(settings, f"ours-{topic}", topic)
    ours.reset()
    done = ours.compact()
    print(f"  {size:,} from nothing: {done.seconds:.1f} s", flush=True)
    root, costs = Path(ours.settings.tables_root), []
    draw = random.Random(size)  # noqa: S311 - the same stream each time
    for _ in range(runs):
        kafka.produce(settings, topic, position_records(draw.sample(range(size), more), by=draw))
        before = _files(root)
        done = ours.compact()
        new = {path: size for path, size in _files(root).items() if path not in before}
        own = sum(n for path, n in new.items() if path.is_relative_to(root / "position_events"))
        costs.append((done.seconds, sum(new.values()) / own))
        shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps(done.log))
        print(
            f"  {more:,} on {size:,}: {done.seconds:.1f} s, peak {done.peak} MiB,"
            f" {sum(new.values()):,} bytes, {own:,} of history; {shares}",
            flush=True,
        )
    return costs


def position_records(
    keys: Sequence[int], by: random.Random | None = None, as_ids: Sequence[int] | None = None
) -> Iterator[Record]:
    """Yield a record for each key; with `by` another exchange for each.

    With `as_ids` these are the positions' ids, on an exchange that counts: new ones of the clients.
    """
    for number, key in enumerate(keys):
        place = EXCHANGES[by.randrange(10) if by else 0 if as_ids else key % 10]
        id_ = as_ids[number] if as_ids else key
        form = {"PositionId": id_, "Client": f"C{key // CLIENT_HAS:07d}", "Ticker": "AAPL"}
        form |= {"Amount": number % 10_000 + 1, "Exchange": place}
        yield str(id_), json.dumps(form, separators=(",", ":")), START_MS + number


def _files(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in root.rglob("*.parquet")}
