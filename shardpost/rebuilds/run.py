"""What the job `rebuild_tables` does: start or continue a rebuild, top it up, swap, roll back."""

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shardpost.delta import snapshots
from shardpost.delta.snapshot import Snapshot
from shardpost.delta.storage import Tables
from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, WrongArgumentError, first_line
from shardpost.holders import plausibility
from shardpost.holders.compaction import publish_and_send
from shardpost.holders.folding import Folding
from shardpost.holders.inputs import mappings_of
from shardpost.holders.model.compaction_request import CompactionRequest
from shardpost.holders.model.input_mapping import text_of
from shardpost.holders.spark.history import decoder_id
from shardpost.installation import Installation
from shardpost.locks.locks import LockedError
from shardpost.logs import step
from shardpost.rebuilds import registry
from shardpost.rebuilds.comparison import compare
from shardpost.rebuilds.drop import record, record_killed
from shardpost.rebuilds.model.rebuild import HISTORIES, Rebuild, Standing, State, folders_of
from shardpost.rebuilds.rebuild_job import Action, RebuildRequest
from shardpost.rebuilds.registry import rebuilding
from shardpost.rebuilds.spark.build import build
from shardpost.rebuilds.spark.top_up import top_up
from shardpost.rebuilds.swap import swap_tables
from shardpost.spark import driver
from shardpost.spark.job import JobResult
from shardpost.topics import guards
from shardpost.values.holding_rule import Rule

log = logging.getLogger(__name__)


def begun(installation: Installation, request: RebuildRequest) -> Rebuild:
    """Return the rebuild that a request begins or continues; ShardpostError beside another."""
    last = snapshots.current(installation.tables)
    rule = request.rule(last.rule_now(installation.settings.rule))
    rebuild = registry.current(installation.tables)
    if rebuild is None:
        if rule != last.rule:
            advice = "Start it with one of these countries"
            plausibility.require_met(rule, installation.tables, last, advice=advice)
        return _new(installation.tables, request, last, rule)
    standing, wanted = rebuild.standing(last), (request.source, rule, request.tables)
    is_same = (rebuild.source, rebuild.rule, rebuild.tables) == wanted
    if is_same and standing in (Standing.BUILDING, Standing.READY):
        _require_decoder(rebuild, standing, text_of(mappings_of(installation)))
        log.info("rebuild %d is %s: continuing it", rebuild.number, standing)
        return rebuild
    raise ShardpostError(
        f"rebuild {rebuild.number} (of {', '.join(rebuild.tables)}, {rebuild.rule}, from"
        f" {rebuild.source}) is {standing}: {_ADVICE[standing]}"
    )


def _require_decoder(rebuild: Rebuild, standing: Standing, inputs: str | None) -> None:
    """Refuse to continue histories that a decoder other than the installed one made."""
    begun_ = rebuild.progress.units or standing is Standing.READY
    is_own = rebuild.candidate.decoder == decoder_id(inputs)
    if begun_ and {*HISTORIES} <= {*rebuild.tables} and not is_own:
        raise ShardpostError(
            f"rebuild {rebuild.number} is {standing}, but its records were decoded by different"
            " code, or another SHARDPOST_INPUTS, than now:"
            f" {_ADVICE[standing] if standing is Standing.READY else _DROP}"
        )


_DROP = "drop it first with `shardpost rebuild drop`"
_ADVICE = {
    Standing.BUILDING: f"continue it with the same options, or {_DROP}",
    Standing.READY: f"swap it, or {_DROP}",
    Standing.ROLLED_BACK: f"swap it, or {_DROP}",
    Standing.IN_USE: "the previous tables are kept for a rollback: drop them first with"
    " `shardpost rebuild drop`",
}


def _new(tables: Tables, request: RebuildRequest, last: Snapshot, rule: Rule) -> Rebuild:
    every = registry.list_rebuilds(tables)
    number = max((rebuild.number for rebuild in every), default=1) + 1  # the tables are the first
    at = datetime.now(UTC)
    folders = folders_of(request.tables, number)
    shared = {name: version for name, version in last.tables.items() if name not in request.tables}
    if missing := {*request.tables} - {*last.tables}:
        raise ShardpostError(
            f"snapshot {last.number} has no table {min(missing)}: run `shardpost compact` first"
        )
    candidate = replace(
        last,
        tables=shared,
        folders={**last.folders, **folders},
        folded={name: at for name, at in last.folded.items() if name in shared},
        rule=rule,
        set_country=None,
    )
    made = Rebuild(
        *(number, at, at, request.by, request.source, rule, request.tables, last.number),
        candidate=candidate,
    )
    registry.insert(tables, made)
    log.info("rebuild %d from snapshot %d: %s", number, last.number, ", ".join(folders.values()))
    if last.history_from:
        at_minute = f"{last.history_from:%Y-%m-%d %H:%M} UTC"
        log.info("pruned up to %s: a stricter decoder may leave a key without a record", at_minute)
    return made


def run(request: RebuildRequest, installation: Installation) -> JobResult:
    """Carry out a request; return the exit code and the JSON result.

    ShardpostError if it cannot be done now, LockedError beside another run of it.
    """
    with rebuilding(installation.files, wait=installation.files.lock_wait):
        match request.action:
            case Action.START:
                rebuild = begun(installation, request)
                if rebuild.state is State.BUILDING:
                    pinned = snapshots.stored(installation.tables, rebuild.pinned)
                    rebuild = build(installation, rebuild, pinned)
            case Action.TOP_UP:
                rebuild = registry.require_current(installation.tables, request.number)
            case Action.SWAP | Action.ROLLBACK:
                return _swap(request, installation)
        return DONE, _result(installation.tables, topped_up(installation, rebuild))


def topped_up(installation: Installation, rebuild: Rebuild) -> Rebuild:
    """Bring new tables that wait to be swapped to the newest snapshot; return their rebuild."""
    newest = snapshots.current(installation.tables)
    waits = rebuild.standing(newest) in (Standing.READY, Standing.ROLLED_BACK)
    return _at(installation, rebuild, newest) if waits else rebuild


def _at(installation: Installation, rebuild: Rebuild, newest: Snapshot) -> Rebuild:
    standby = rebuild.standby(newest)
    if standby is None or standby.number == newest.number:
        return rebuild
    standby = top_up(installation, standby, newest, rebuild.tables)
    step("topped up")
    return registry.update(installation.tables, rebuild.with_standby(standby, newest))


def _swap(request: RebuildRequest, installation: Installation) -> JobResult:
    tables, done = installation.tables, dict[str, Any]()
    is_swap = request.action is Action.SWAP
    afterwards = Standing.IN_USE if is_swap else Standing.ROLLED_BACK
    with guards.run(installation, "rebuild_swap"):
        last = snapshots.current(tables)
        rebuild = registry.require_current(tables, request.number)
        if rebuild.standing(last) is not afterwards:
            _require(request, rebuild, last)
            rebuild = _at(installation, rebuild, last)
            standby = rebuild.require_standby(last)
            if request.max_changed is not None:
                difference = compare(tables, installation.kafka, last, standby)
                if refused := difference.refusal(request.max_changed):
                    said = {"difference": difference.as_json(), "refused": refused}
                    return NEEDS_ATTENTION, _result(tables, rebuild) | said
            record_killed(installation, rebuild, last)
            step("publish the rest")
            # Rows of the standby tables may have any number up to that of `last`: none is news.
            publish_and_send(installation, last, mark=True)
            last, rebuild, count = swap_tables(installation, rebuild, last, standby)
            done = {"committed": last.number, "changed_holders": count}
        assert last.rebuilt_in is not None  # noqa: S101 - its tables were swapped
        step("on record")  # what follows may be for a run that was killed after its commit
        record(installation, request, rebuild, last.rebuilt_in)
        step("publish the difference")
        code, published = publish_and_send(installation, last)
        Folding(tables, last).fold_if_due(datetime.now(UTC), installation.settings.fold_age)
    return code, _result(tables, rebuild) | done | published | {"view": last.as_json()}


def _require(request: RebuildRequest, rebuild: Rebuild, last: Snapshot) -> None:
    """Refuse a rebuild in the wrong state for the action, or swapped since the comparison."""
    standing = rebuild.standing(last)
    expected, those = "in use", {Standing.IN_USE}
    if request.action is Action.SWAP:
        expected, those = "ready", {Standing.READY, Standing.ROLLED_BACK}
    if standing not in those:
        advice = "swap it first"
        if standing is Standing.BUILDING:
            advice = "continue it with `shardpost rebuild start` and the same options"
        raise ShardpostError(
            f"rebuild {rebuild.number}: expected it to be {expected}, found it {standing}: {advice}"
        )
    if request.compared is not None and (last.rebuilt_in or 0) > request.compared:
        raise ShardpostError(
            f"rebuild {rebuild.number}: expected the tables in use that were compared at snapshot"
            f" {request.compared}, but tables were swapped at snapshot {last.rebuilt_in}: compare"
            " again"
        )


def _result(tables: Tables, rebuild: Rebuild) -> dict[str, Any]:
    return registry.described(rebuild, snapshots.current(tables))


def top_up_waiting(installation: Installation) -> None:
    """Top up new tables that wait, after a compaction and outside its lock; errors are warnings."""
    try:
        with driver.job_errors():
            if _waiting(installation.tables):
                with rebuilding(installation.files):
                    # It may have been swapped or dropped meanwhile.
                    if rebuild := _waiting(installation.tables):
                        topped_up(installation, rebuild)
    except LockedError as error:
        log.info("the tables of the rebuild were not topped up: %s", error.holder)
    except ShardpostError as error:
        log.warning(
            "the tables of the rebuild were not topped up: %s; the tables in use are complete,"
            " and the next compaction, `shardpost rebuild diff` or `swap` retries",
            first_line(error),
        )


def with_rule_held(installation: Installation, asked: CompactionRequest) -> Installation:
    """Return the installation with the rule of the tables in use, while others are beside them.

    Another one in the settings is seen in the difference first, and comes with the swap: UsageError
    where it is asked for now. To be asked behind the lock of the compaction, without which no swap
    commits.
    """
    last, rebuild = snapshots.newest(installation.tables), registry.current(installation.tables)
    if last is None or rebuild is None or rebuild.standing(last) is Standing.IN_USE:
        return installation
    setting = installation.settings.rule
    if asked.country_changed and setting != last.rule:
        raise WrongArgumentError(
            f"--country-changed: {last.rule} stays in force until rebuild {rebuild.number} is"
            f" swapped or dropped, and the settings have {setting}: swap it, or `shardpost rebuild"
            " drop` first"
        )
    if last.rule_now(setting) == last.rule:
        return installation
    text = "the settings have %s: %s stays in force until rebuild %d is swapped or dropped"
    log.info(text, setting, last.rule, rebuild.number)
    return installation.having(**vars(last.rule))


def _waiting(tables: Tables) -> Rebuild | None:
    """Return the rebuild whose new tables wait to be swapped for the first time."""
    rebuild, newest = registry.current(tables), snapshots.newest(tables)
    is_ready = rebuild and newest and rebuild.standing(newest) is Standing.READY
    return rebuild if is_ready else None
