"""Folding the layers of the tables into their files, where they have become large."""

import logging
from collections.abc import Collection

from shardpost.delta.layers import LayeredVersion
from shardpost.delta.query import rows
from shardpost.delta.table import Table
from shardpost.holders.model.folding import FoldingRule
from shardpost.holders.spark.holders_run import HoldersRun
from shardpost.holders.spark.table_writer import LAYERED
from shardpost.settings import Settings
from shardpost.steps import step

log = logging.getLogger(__name__)


def fold_layers(run: HoldersRun, own: Collection[str] | None = None) -> None:
    """Rewrite the tables whose layer is due to be folded in, as this run sees them.

    Of all tables, or of those with a name in `own`.
    """
    rule = _rule(run.settings)
    for table in LAYERED:
        if own is not None and table.name not in own:
            continue
        version = run.tables.at(table)
        if not isinstance(version, LayeredVersion):
            continue
        records, stored = _sizes(run.settings, run.tables.located(table), version)
        runs = run.number - version.folded
        if rule.is_due(records=records, rows=stored, runs=runs):
            step(f"{table.name} fold")
            said = (table.name, records, runs, stored)
            log.info("%s: folding %d records of %d runs into %d rows", *said)
            run.tables.fold(table)


def _sizes(settings: Settings, table: Table, version: LayeredVersion) -> tuple[int, int]:
    """Return how many records the layer has, and how many rows the files."""
    source = table.layer_source
    records = _count(settings, source, version.source, f"snapshot > {version.folded}")
    if source == table:
        return records, _count(settings, table, version.version, f"snapshot <= {version.folded}")
    return records, _count(settings, table, version.version, "true")


def _count(settings: Settings, table: Table, version: int, condition: str) -> int:
    sql = f"SELECT COUNT(*) AS n FROM {table.name} WHERE {condition}"  # noqa: S608 - ours
    return int(rows(settings, sql, {table: version})[0]["n"])


def _rule(settings: Settings) -> FoldingRule:
    return FoldingRule(settings.fold_share, settings.fold_records, settings.fold_runs)
