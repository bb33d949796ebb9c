"""What age costs: the same commands and the disk of a home at snapshot 100, and of one that ages.

Both homes are measured at each milestone, each command in turn, since the speed of a machine
changes within the hours that it takes. Started again, it goes on where the homes are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from bench.aged_home import MORE, AgedHome
from bench.aging import APART
from bench.measured import Measured
from bench.ours import Ours
from shardpost.settings import Settings

YOUNG = 100
BACK = 36_000  # so many snapshots ago both begin: a year of them, and some more
MILESTONES = (1_000, 4_000, 8_000, 16_000, 35_040)
CLIENT = "C000007"
AT = "2025-06-02T00:00:10+00:00"  # the records begin at the start of that day


@dataclass(frozen=True)
class Ages:
    """Records at first; how many snapshots the old home has in the end; how often to measure."""

    records: int
    snapshots: int
    runs: int


def measure(settings: Settings, ages: Ages) -> None:
    """Let a home grow old beside a young one; print what both take, milestone by milestone."""
    young, old = (_home(settings, f"age-{ages.records}-{name}", ages) for name in ("young", "old"))
    homes = (young, old)
    if not old.snapshots:
        began = datetime.now(UTC) - BACK * APART
        for home in homes:  # all are emptied first: that forgets what the groups of both have read
            home.empty()
        for home in homes:
            home.begin(began)
    for home in homes:
        home.grow_old(YOUNG)
    reached = old.snapshots
    for milestone in (*MILESTONES, ages.snapshots):
        if reached < milestone <= ages.snapshots:
            old.grow_old(milestone)
            _print(milestone, _times(*homes, ages.runs), *(dict(home.sizes()) for home in homes))
            old.check()


def _home(settings: Settings, name: str, ages: Ages) -> AgedHome:
    return AgedHome(Ours(settings, f"ours-{name}", name), ages.records)


def _times(young: AgedHome, old: AgedHome, runs: int) -> dict[str, tuple[float, float]]:
    """Return the seconds that each command takes, median by median."""
    found = {}
    for name, command in COMMANDS.items():
        pairs = [(command(young).seconds, command(old).seconds) for _ in range(runs)]
        before, after = map(median, zip(*pairs, strict=True))
        found[f"{name}, s"] = before, after
    return found


COMMANDS: dict[str, Callable[[AgedHome], Measured]] = {
    f"compact {MORE} records": AgedHome.compact,
    "compact with nothing new": lambda home: home.ours.compact(),
    "holders CLIENT": lambda home: home.ours.command("holders", CLIENT),
    "holders": lambda home: home.ours.command("holders", "--json"),
    "holders CLIENT --as-of": lambda home: home.ours.command("holders", CLIENT, "--as-of", AT),
    "explain CLIENT": lambda home: home.ours.command("explain", CLIENT),
    "snapshots": lambda home: home.ours.command("snapshots"),
    "tables maintain --dry-run": lambda home: home.ours.command("tables", "maintain", "--dry-run"),
}


def _print(
    milestone: int,
    times: dict[str, tuple[float, float]],
    young: dict[str, float],
    old: dict[str, float],
) -> None:
    rows = times | {name: (young.get(name, 0.0), size) for name, size in old.items()}
    print(f"\n| | snapshot {YOUNG} | snapshot {milestone:,} | ratio |")
    print("| --- | --- | --- | --- |")
    for name, (before, after) in rows.items():
        ratio = f"{after / before:.2f}" if before else ""
        print(f"| {name} | {before:.2f} | {after:.2f} | {ratio} |")
    print(flush=True)
