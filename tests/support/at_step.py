"""What happens at a named step of a job that runs in this process: it dies, or another runs."""

from collections.abc import Callable
from types import ModuleType

import pytest

Does = Callable[[], object]


class Killed(BaseException):
    """What a test raises where a process is killed."""


def killed() -> None:
    """Be killed."""
    raise Killed


def at_step(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Callable[[str, Does], None]:
    """Return what has something happen once, when these modules come to a step of that name."""

    def hook(wanted: str, does: Does) -> None:
        pending = [does]

        def step(name: str) -> None:
            if name == wanted and pending:
                pending.pop()()

        for module in modules:
            monkeypatch.setattr(module, "step", step)

    return hook
