"""How two processes share the tests (`pytest -n 2`): one by one, but one Airflow stays in one."""

from xdist.scheduler import LoadScopeScheduling

# Tests that share what takes longer to set up than most of them take: they stay in one process.
TOGETHER = ("tests/e2e/", "tests/dags/")
# It has a stack of its own.
ALONE = "tests/e2e/test_demo.py"


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process the next test, or the next group of tests, when it is nearly done."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of a test's group; a group is never split."""
        shared = [tier for tier in TOGETHER if nodeid.startswith(tier)]
        return shared[0] if shared and not nodeid.startswith(ALONE) else nodeid
