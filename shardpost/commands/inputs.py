"""`shardpost inputs`: how the records of the inputs are read, by SHARDPOST_INPUTS."""

from collections.abc import Iterator
from typing import Any

import click

from shardpost.commands.console import AS_JSON, REGISTRY, print_document, text_table
from shardpost.errors import DONE, NEEDS_ATTENTION, UsageError
from shardpost.holders.compaction_job import CHECK_INPUTS
from shardpost.holders.model.compaction_request import CheckRequest
from shardpost.holders.suggested_input import suggested
from shardpost.installation import opened
from shardpost.spark.submit import submit
from shardpost.values.topic_names import INPUTS, TopicName
from shardpost.wording import counted, meant

MOST_SHOWN = 10


@click.group("inputs")
def inputs_command() -> None:
    """Show how the records of the inputs are read, by SHARDPOST_INPUTS."""


@inputs_command.command("check")
@click.argument("topics", nargs=-1, type=click.Choice(INPUTS), metavar="[TOPIC]...")
@click.option(
    "--sample",
    type=click.IntRange(1, 10_000),
    default=CheckRequest.sample,
    metavar="N",
    help=f"Records of each topic, the newest; default: {CheckRequest.sample}.",
)
@AS_JSON
def check_command(topics: tuple[TopicName, ...], sample: int) -> int:
    """Decode some records of each input; print what comes out, and what does not and why.

    TOPIC is positions, clients or exchanges; by default all of them. Nothing is
    written. Exit code 3 if any record is rejected.
    """
    code, result = submit(opened(), CHECK_INPUTS, CheckRequest(topics or INPUTS, sample))
    if result is not None:
        print_document(result, lambda: _check_lines(result))
    return code


@inputs_command.command("suggest")
@click.argument("topic")
@REGISTRY
@AS_JSON
def suggest_command(topic: str, url: str | None) -> int:
    """Print an entry for SHARDPOST_INPUTS, made from the newest records of a topic.

    TOPIC is positions, clients or exchanges, or what the topic is called in Kafka. What was not
    found is in comments; exit code 3 if that has to be there.
    """
    installation = opened()
    by_name = {installation.topic(name): name for name in INPUTS} | {name: name for name in INPUTS}
    if topic not in by_name:
        raise UsageError(f"{topic}: expected {', '.join(by_name)}{meant(topic, by_name)}")
    found = suggested(installation, by_name[topic], url)
    print_document(found.entry | {"notes": found.notes}, found.lines)
    return NEEDS_ATTENTION if found.lacks else DONE


def _check_lines(result: dict[str, Any]) -> Iterator[str]:
    for name, records in result.items():
        right, rejected = (
            [one for one in records if bool(one["reason"]) is is_] for is_ in (False, True)
        )
        yield f"{name}: {counted(len(records), 'record')}, {len(rejected)} rejected"
        rows = [[one["kind"], one["key"], *one["fields"].values()] for one in right[:MOST_SHOWN]]
        texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
        for one in right[:1]:
            yield from text_table(("kind", "key", *one["fields"]), texts).splitlines()
        for one in rejected[:MOST_SHOWN]:
            yield f"{name}[{one['partition']}]@{one['offset']}: {one['reason']}"
