"""How processes share the tests (`pytest -n 3`): one by one, from both ends of their list.

The larger half of them begins with tests that wait most of the time, the others with Spark's, which
compute: so no core waits. In a quick run one process alone takes Spark's: a session takes a minute
of a core until it is warm. The others give way to it: else it is left with one core's work at the
end, and the other core waits. Tests that share an Airflow, a cluster or a world stay in one
process. So do those of a file of tests/broker: each process would start the broker, stack or
browser of the file.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.how_far import is_every

T = TypeVar("T")

# Tests that share what takes longer to set up than most of them take: they stay in one process.
TOGETHER = (
    "tests/e2e/",
    "tests/cluster/",
    "tests/dags/",
    "tests/spark/test_corrections.py",
)
SPARK, BROKER = "tests/spark/", "tests/broker/"
# Each has a stack, or an Airflow, of its own.
ALONE = (
    "tests/e2e/test_assets.py",
    "tests/e2e/test_demo.py",
    "tests/e2e/test_following.py",
    "tests/e2e/test_late_compaction.py",
    "tests/e2e/test_mail_rate.py",
    "tests/e2e/test_own_airflow.py",
    "tests/e2e/test_two_installations.py",
)

# From the end that waits to the end that computes; the short ones are where both meet.
ORDER = ("containers", "e2e", "cluster", "dags", "broker", "unit", "spark")


def ordered(items: Sequence[T], tiers: Sequence[str]) -> list[T]:
    """Return tests, each of the tier beside it, in the order in which they are taken from the ends.

    Of Spark's the first files are at the end: the longest tests are in them.
    """
    of_tier: dict[str, list[T]] = {tier: [] for tier in ORDER}
    for item, tier in zip(items, tiers, strict=True):
        of_tier[tier].append(item)
    of_tier["spark"].reverse()
    of_tier["broker"].reverse()  # tests that wait longest have names behind those of others
    return [*chain.from_iterable(of_tier.values())]


GIVES_WAY = 3  # by nice(1): it gets half the time of one that does not


def give_way(workerinput: Mapping[str, object]) -> None:
    """Have this process, and what it starts, give way to that of Spark's tests in a quick run."""
    number, count = str(workerinput["workerid"]).removeprefix("gw"), workerinput["workercount"]
    if not is_every() and not _begins_at_the_end(int(number), int(str(count))):
        os.nice(GIVES_WAY)


def _begins_at_the_end(number: int, count: int) -> bool:
    """Tell whether a process takes the tests that compute first."""
    return number >= count / 2


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process the next test, or the next group of tests, when it is nearly done."""

    def schedule(self) -> None:
        """Share the tests in their order; xdist's own puts large groups first, Spark's among them.

        A process that waits would start a Spark for that one group.
        """
        self.config.option.loadscopereorder = False
        super().schedule()

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the next test from the process's own end of the list."""
        if self._is_of_spark(node):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process more, or end it where nothing is left that it takes.

        It begins a test once it has the next one: who takes a crashed one's place needs two.
        """
        if self._is_done(node) and not node.shutting_down:
            node.shutdown()
        super()._reschedule(node)
        is_short = self._pending_of(self.assigned_work[node]) < 2
        if is_short and self.workqueue and not node.shutting_down:
            self._reschedule(node)

    def _is_done(self, node: WorkerController) -> bool:
        """Tell whether nothing but Spark's tests is left, and another process is there for them."""
        if is_every() or self._is_of_spark(node) or not any(map(self._is_of_spark, self.nodes)):
            return False
        has_begun = any(not test.startswith(SPARK) for test in self.assigned_work[node])
        return has_begun and next(iter(self.workqueue), "").startswith(SPARK)

    def _is_of_spark(self, node: WorkerController) -> bool:
        """Tell whether a process begins at the end of the list."""
        number = int(node.gateway.id.removeprefix("gw"))
        return _begins_at_the_end(number, int(self.numnodes))

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a process that ended. If it crashed, return in which test; others get the rest.

        xdist's own gives others again what was finished, and waits for ever for these to end.
        """
        work = self.assigned_work.pop(node)
        left = [test for tests in work.values() for test, is_done in tests.items() if not is_done]
        if not left:
            return None
        crashed: str = left[0]
        work[self._split_scope(crashed)][crashed] = True
        self.workqueue.update(
            {one: tests for one, tests in work.items() if not all(tests.values())}
        )
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of a test's group; a group is never split."""
        if nodeid.startswith((BROKER, *ALONE)):
            return nodeid.partition("::")[0]
        return next((tier for tier in TOGETHER if nodeid.startswith(tier)), nodeid)
