"""A compaction beside a rebuild: the country stays, and new tables are topped up afterwards."""

import logging

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from shardpost.delta import snapshots
from shardpost.errors import ShardpostError
from shardpost.holders.spark.compaction import compact
from shardpost.locks import LockedError
from shardpost.rebuilds import store
from shardpost.rebuilds.locked import rebuilding
from shardpost.rebuilds.model.rebuild import Standing
from shardpost.rebuilds.run import SparkWork, topped_up
from shardpost.settings import Settings
from shardpost.spark.job_spec import JobResult

log = logging.getLogger(__name__)


def compact_and_top_up(settings: Settings, work: SparkWork, *, reconcile: bool) -> JobResult:
    """Compact; then top up new tables that wait to be swapped, outside the compaction's lock.

    The result is the compaction's: what goes wrong with the other tables is a warning.
    """
    result = compact(with_country_held(settings), reconcile=reconcile)
    try:
        _top_up(settings, work)
    except LockedError as error:
        log.info("the tables of the rebuild were not topped up: %s", error.holder)
    except (ShardpostError, PySparkException, Py4JError, DeltaError, OSError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        log.warning(
            "the tables of the rebuild were not topped up: %s; those in use are complete, and the"
            " next compaction, `shardpost rebuild diff` or `swap` tries again",
            line,
        )
    return result


def with_country_held(settings: Settings) -> Settings:
    """Return the settings with the country of the tables in use, while others are beside them.

    A changed SHARDPOST_COUNTRY is seen in the difference first, and comes with the swap.
    """
    last, rebuild = snapshots.newest(settings), store.current(settings)
    if last is None or rebuild is None or rebuild.standing(last) is Standing.IN_USE:
        return settings
    held = last.set_country or last.country
    if settings.country != held:
        log.info(
            "SHARDPOST_COUNTRY is %s: %s stays in force until rebuild %d is swapped or dropped",
            *(settings.country, last.country, rebuild.number),
        )
    return settings.model_copy(update={"country": held})


def _top_up(settings: Settings, work: SparkWork) -> None:
    rebuild, newest = store.current(settings), snapshots.newest(settings)
    if rebuild is None or newest is None or rebuild.standing(newest) is not Standing.READY:
        return
    with rebuilding(settings):
        topped_up(settings, store.require_current(settings), work)
