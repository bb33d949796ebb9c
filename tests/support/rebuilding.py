"""Rebuilds in this process, whose Spark session is there already."""

from typing import Any

from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.rebuilds.model.rebuild import Source
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest, tables_of
from shardpost.rebuilds.run import run
from shardpost.settings import Settings
from spark_jobs.compact_positions import turn
from tests.support.installed import installed


def request(action: Action, **more: Any) -> RebuildRequest:
    """Return a request of a test."""
    return RebuildRequest(action, "tester", "a test", **more)


def start(
    settings: Settings,
    country: str = "US",
    tables: str | None = None,
    source: Source = Source.HISTORY,
) -> dict[str, Any]:
    """Build tables anew beside those in use."""
    wanted = request(Action.START, country=country, tables=tables_of(tables), source=source)
    return done(settings, wanted)


def swap(settings: Settings) -> dict[str, Any]:
    """Put them in use."""
    return done(settings, request(Action.SWAP))


def rollback(settings: Settings) -> dict[str, Any]:
    """Put those before in use again."""
    return done(settings, request(Action.ROLLBACK))


def done(settings: Settings, wanted: RebuildRequest) -> dict[str, Any]:
    """Do what a request says, which is to end well."""
    code, result = run(wanted, installed(settings))
    assert code == 0
    return result


def compacted(settings: Settings) -> dict[str, Any]:
    """Compact, as the job does beside a rebuild; return its result."""
    code, result = turn(installed(settings), CompactionRequest())
    assert code == 0
    return result
