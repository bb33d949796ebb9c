"""What Spark's tasks took, part by part of a run, by the event log of its driver."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measured import MIB
from bench.ours import part_of, step_starts
from shardpost.settings import Settings

EVENT_LOG = """\
spark.eventLog.enabled true
spark.eventLog.rolling.enabled false
spark.eventLog.compress false
spark.eventLog.dir file://{folder}
"""


@dataclass(frozen=True)
class Task:
    """A task: when it ran, in seconds since 1970; what it took, in processor seconds and bytes."""

    began: float
    ended: float
    processor: float
    memory: int
    spilled: int
    shuffled: int


@dataclass(frozen=True)
class Use:
    """What the tasks of a part took.

    `seconds` are those of all tasks together, `busy` those in which at least one ran, `processor`
    is its time; `memory` is that of the task which took most, in MiB; `spilled` and `shuffled` are
    MB of all.
    """

    tasks: int
    seconds: float
    busy: float
    processor: float
    memory: int
    spilled: int
    shuffled: int

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> "Use":
        """Add tasks up."""
        return cls(
            len(tasks),
            sum(task.ended - task.began for task in tasks),
            _busy(tasks),
            sum(task.processor for task in tasks),
            max((task.memory for task in tasks), default=0) // MIB,
            sum(task.spilled for task in tasks) // 10**6,
            sum(task.shuffled for task in tasks) // 10**6,
        )

    def __str__(self) -> str:
        """Return it for a reader."""
        return (
            f"{self.tasks} tasks, {self.seconds:.1f} s together, {self.busy:.1f} s with any,"
            f" {self.processor:.1f} s of the processor, {self.memory} MiB at most,"
            f" {self.shuffled} MB shuffled, {self.spilled} MB spilled"
        )


def with_event_log(settings: Settings, *more: str) -> Settings:
    """Return settings whose jobs log their tasks, with more lines of Spark's properties."""
    folder = settings.folder("events")
    file = settings.folder() / "spark.conf"
    file.write_text("\n".join([EVENT_LOG.format(folder=folder), *more]))
    return settings.model_copy(update={"spark_conf": file})


def by_part(settings: Settings, log: str) -> dict[str, Use]:
    """Return what the tasks of the last run took, in each part that its log has; "start" is first.

    A task counts where it began. The event logs that are there are deleted.
    """
    logs = sorted(settings.folder("events").iterdir(), key=lambda path: path.stat().st_mtime)
    tasks = [*_tasks(logs[-1])] if logs else []
    for path in logs:
        path.unlink()
    starts = [(0.0, "start"), *step_starts(log)]
    ends = [at for at, _ in starts[1:]] + [float("inf")]
    found: dict[str, list[Task]] = {part_of(name): [] for _, name in starts}
    for (at, name), until in zip(starts, ends, strict=True):
        found[part_of(name)] += [task for task in tasks if at <= task.began < until]
    return {name: Use.of(own) for name, own in found.items() if own}


def _tasks(path: Path) -> Iterator[Task]:
    with path.open() as lines:
        for line in lines:
            event = json.loads(line) if '"SparkListenerTaskEnd"' in line else {}
            info, metrics = event.get("Task Info"), event.get("Task Metrics")
            if info and metrics:
                yield Task(
                    info["Launch Time"] / 1000,
                    info["Finish Time"] / 1000,
                    metrics["Executor CPU Time"] / 10**9,
                    metrics["Peak Execution Memory"],
                    metrics["Disk Bytes Spilled"],
                    metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"],
                )


def _busy(tasks: Sequence[Task]) -> float:
    busy = until = 0.0
    for task in sorted(tasks, key=lambda task: task.began):
        busy += max(0.0, task.ended - max(task.began, until))
        until = max(until, task.ended)
    return busy
