"""The result of an import (run.py) in words, one line each."""

from collections.abc import Iterator
from typing import Any

from shardpost.position_import.model.plan import WRITTEN, Change

SHOWN = (*WRITTEN, Change.EQUAL)


def summary(result: dict[str, Any]) -> Iterator[str]:
    """Yield what the list is, what it changes, and what became of that."""
    yield f"import {result['import_id']}: {result['rows']} rows of {result['source']}"
    for change in SHOWN:
        ids = result["samples"].get(change, [])
        such = f"  such as {', '.join(ids)}" if ids else ""
        yield f"{change:<8}{result[change]:>10}{such}"
    if result["rejected_rows"]:
        yield f"rejected{result['rejected_rows']:>10}  rows; {result['left']} open positions stay"
    if not result["refused"]:
        yield _outcome(result)


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Yield what somebody should know."""
    if result["ignored"]:
        yield f"ignored columns: {', '.join(result['ignored'])}"
    for found in result["rejected"]:
        yield f"rejected: {_row(found['row'])}: {found['reason']}"
    if (more := result["rejected_rows"] - len(result["rejected"])) > 0:
        yield f"and {more} more rows are rejected"


def _outcome(result: dict[str, Any]) -> str:
    records = sum(result[change] for change in WRITTEN)
    if before := result["applied_before"]:
        again = f"; {records} positions differ since: give another --id" if records else ""
        return f"applied already, at {before['at']} by {before['by']}{again}"
    if result["applied"]:
        compact = "; `shardpost compact` takes them into the tables" if records else ""
        return f"applied: {result['written']} records written{compact}"
    return f"{records} records would be written; add --apply to do it"


def _row(row: dict[str, str | None]) -> str:
    if "text" in row:
        return repr(row["text"])
    return ", ".join(f"{name} {value}" for name, value in row.items() if value) or "an empty row"
