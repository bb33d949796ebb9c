"""An order of a rebuild, given to its job; and its result in words."""

import json
from typing import TYPE_CHECKING, Any

import click

from shardpost.errors import COULD_NOT, NEEDS_ATTENTION
from shardpost.settings import load

if TYPE_CHECKING:
    from shardpost.rebuilds.order import Order


def submitted(order: "Order") -> tuple[int, dict[str, Any] | None]:
    """Let the job do what an order says; return its exit code, and its result if it has one."""
    from shardpost.rebuilds.rebuild_job import REBUILD_TABLES
    from shardpost.spark.submit import submit

    code, result = submit(load(), REBUILD_TABLES, order.as_arguments())
    return (code or COULD_NOT if result is None else code), result


def carry_out(order: "Order", *, as_json: bool) -> int:
    """Let the job do what an order says, and print its result."""
    code, result = submitted(order)
    if result is None:
        return code
    click.echo(json.dumps(result) if as_json else in_words(result))
    if code == NEEDS_ATTENTION and "refused" in result:
        click.echo(f"shardpost: {result['refused']}", err=True)
    return code


def in_words(found: dict[str, Any]) -> str:
    """Return what is known of a rebuild as one line."""
    line = f"rebuild {found['rebuild']} is {found['state']}: country {found['country']}, from"
    line += f" {found['source']}, {', '.join(found['tables'].values())}"
    if found["state"] == "building":
        progress = found["progress"]
        line += f"; {progress['records']:,} of {progress['of_records']:,} records"
    elif found["state"] == "in use":
        line += f"; for a rollback, the tables as of snapshot {found['snapshot']} are kept"
    elif found["behind"]:
        line += f"; {found['behind']} snapshot{'s' * (found['behind'] > 1)} behind"
    if "published" in found:
        done = f"{found['published']} records published"
        if found.get("letters"):
            done += f", {found['letters']} dead letters"
        if "committed" in found:
            differ = f"{found['changed_holders']} lists differ"
            done = f"snapshot {found['committed']}: {differ}, {done}"
        line += f"; {done}"
    for gone in found["missing"]:
        line += f"\nno longer in Kafka: {gone}"
    return line
