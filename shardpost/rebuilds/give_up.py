"""Giving up the tables of a rebuild that are not in use, as somebody decided, on record."""

from shardpost.rebuilds.drop import drop
from shardpost.rebuilds.model.rebuild import Rebuild
from shardpost.rebuilds.on_record import record_drop
from shardpost.settings import Settings


def give_up(
    settings: Settings, by: str, why: str, number: int | None = None, *, even_in_use: bool = True
) -> tuple[Rebuild, list[str]]:
    """Drop a rebuild as `drop` does, by whom and why on record; return what `drop` returns.

    Killed in between, it is on record, and there: dropped again, it is on record once.
    """

    def decide(found: Rebuild) -> None:
        record_drop(settings, found, by, why)

    return drop(settings, number, even_in_use=even_in_use, decide=decide)
