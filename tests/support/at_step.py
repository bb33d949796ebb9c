"""What happens at a named step of a job that runs in this process: it dies, or another runs."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from unittest import mock

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


@contextmanager
def killing(hook: Callable[[str, Does], None], step: str) -> Iterator[None]:
    """Have what is done here, by a hook of `at_step`, be killed at a step."""
    hook(step, killed)
    with pytest.raises(Killed):
        yield


@contextmanager
def maybe_killing(wanted: str, *modules: ModuleType) -> Iterator[None]:
    """Have what is done here be killed at a step of these modules, if it comes to it."""
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        at_step(patch, *modules)(wanted, killed)
        yield


@contextmanager
def dying(module: ModuleType, wanted: str, nth: int = 1) -> Iterator[None]:
    """Let every thread die that comes to a step of a module, once it was come to so many times."""
    left = itertools.count(nth - 1, -1)

    def die(name: str) -> None:
        if name == wanted and next(left) <= 0:
            raise KeyboardInterrupt

    with mock.patch.object(module, "step", die):
        yield
