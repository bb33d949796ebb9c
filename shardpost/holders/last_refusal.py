"""Why the last compaction was refused, as doctor and watch report it; in a shared file."""

from collections.abc import Iterator
from contextlib import contextmanager

from shardpost.errors import UsageError
from shardpost.plausibility import CollapseError
from shardpost.settings import Settings
from shardpost.shared_files import SharedFile

REFUSED = "compaction-refused.txt"


@contextmanager
def noting_refusal(settings: Settings) -> Iterator[None]:
    """Note why a compaction was refused, for doctor and watch, until one is not."""
    try:
        yield
    except (CollapseError, UsageError) as refusal:
        why = str(refusal)
        SharedFile(settings, REFUSED).change(lambda _: why)
        raise


def forget_refusal(settings: Settings) -> None:
    """Note that the last compaction was not refused."""
    SharedFile(settings, REFUSED).remove()


def refusal(settings: Settings) -> str | None:
    """Return why the last compaction was refused, None if it was not."""
    return SharedFile(settings, REFUSED).read()
