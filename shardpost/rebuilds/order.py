"""The order that makes the job `rebuild_tables`: its action, tables and bounds, as arguments.

The order that makes the job `rebuild_tables`: its action, tables and bounds, as arguments.

The Spark job `rebuild_tables`, as commands and DAGs submit it, and its arguments.

The arguments of the job `rebuild_tables`, and the order that they make.

The Spark job `rebuild_tables`, as commands and DAGs submit it.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shardpost.errors import UsageError
from shardpost.holders.model.view_tables import VIEW
from shardpost.rebuilds.model.rebuild import HISTORIES, Source, with_dependents
from shardpost.shares import parse_share
from shardpost.spark.job_spec import job_parser


class Action(StrEnum):
    """What a run of the job does."""

    START = "start"
    TOP_UP = "top-up"
    SWAP = "swap"
    ROLLBACK = "rollback"


@dataclass(frozen=True)
class Order:
    """What is to be done, by whom, and why.

    `country` and `tables` are for START; None and () mean the country in force and all. `number` is
    the rebuild that is meant by the others; None means that whose tables are there. A swap is
    refused if more than the share `max_changed` differs; None means any. It is refused, too, if
    tables were swapped since the snapshot `compared`, at which somebody agreed to it.
    """

    action: Action
    by: str
    why: str = ""
    source: Source = Source.HISTORY
    country: str | None = None
    tables: tuple[str, ...] = ()
    max_changed: float | None = None
    number: int | None = None
    compared: int | None = None

    def __post_init__(self) -> None:
        """UsageError for a source of which the tables are not made."""
        if self.source is Source.KAFKA and self.tables and not {*HISTORIES} <= {*self.tables}:
            raise UsageError(
                f"tables {', '.join(self.tables)} from kafka: only the histories are read from the"
                " topics. Rebuild all tables, or these from the history"
            )

    def as_arguments(self) -> list[str]:
        """Return the arguments of the job that make this order."""
        made = [str(self.action), f"--by={self.by}", f"--why={self.why}"]
        made.append(f"--from={self.source}")
        if self.country is not None:
            made.append(f"--country={self.country}")
        if self.tables:
            made.append(f"--tables={','.join(self.tables)}")
        if self.max_changed is not None:
            made.append(f"--max-changed={self.max_changed}")
        if self.number is not None:
            made.append(f"--rebuild={self.number}")
        if self.compared is not None:
            made.append(f"--compared={self.compared}")
        return made


def parser(description: str | None = None) -> ArgumentParser:
    """Return the parser of this job's arguments."""
    made = job_parser(description)
    made.add_argument("action", choices=[*Action], type=Action)
    made.add_argument("--by", required=True, help="who wants it")
    made.add_argument("--why", default="", help="why; recorded on `decisions`")
    made.add_argument("--from", dest="source", choices=[*Source], type=Source, default="history")
    made.add_argument("--country", help="whose stock counts; default: as now")
    made.add_argument("--tables", default="", help="names, with commas; default: all")
    made.add_argument("--max-changed", type=parse_share, help="such as 1%%; default: any share")
    made.add_argument("--rebuild", type=int, help="its number; default: the one that there is")
    made.add_argument("--compared", type=int, help="the snapshot at which a swap was agreed to")
    return made


def order_of(arguments: Namespace) -> Order:
    """Return the order; UsageError for a table that there is not."""
    return Order(
        action=arguments.action,
        by=arguments.by,
        why=arguments.why,
        source=Source(arguments.source),
        country=arguments.country,
        tables=tables_of(arguments.tables),
        max_changed=arguments.max_changed,
        number=arguments.rebuild,
        compared=arguments.compared,
    )


def order_of_arguments(arguments: Sequence[str]) -> Order:
    """Return the order that those arguments make."""
    return order_of(parser().parse_args([*arguments]))


def tables_of(names: str) -> tuple[str, ...]:
    """Return the tables of names with commas, and those made of them; all for none."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return with_dependents(listed or [table.name for table in VIEW])
