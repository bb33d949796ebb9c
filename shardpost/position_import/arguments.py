"""The arguments of the job `import_positions`, and the request that they make."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import UTC, datetime

from shardpost.position_import.model.request import ImportRequest
from shardpost.position_import.model.source import JdbcSource
from shardpost.position_import.sources import find_source
from shardpost.spark.job_arguments import job_parser


def parser(description: str | None = None) -> ArgumentParser:
    """Return the parser of this job's arguments."""
    made = job_parser(description)
    made.add_argument("--source", required=True, help="file, folder, or JDBC URL")
    made.add_argument("--format", choices=["csv", "json", "parquet"], help="default: by the name")
    made.add_argument("--table", help="of the database")
    made.add_argument("--query", help="of the database, in SQL")
    made.add_argument("--apply", action="store_true", help="write the difference")
    made.add_argument("--id", help="import id; default: of the content")
    made.add_argument("--max-closed", type=float, help="share of open positions that may close")
    made.add_argument("--who", required=True, help="who imports")
    made.add_argument("--why", help="reason, on record")
    return made


def request_of(given: Namespace) -> ImportRequest:
    """Return the request; UsageError for a source that is none."""
    return ImportRequest(
        find_source(given.source, given.format, given.table, given.query),
        datetime.now(UTC),
        given.who,
        given.apply,
        given.id,
        given.max_closed,
        given.why,
    )


def arguments_of(request: ImportRequest) -> list[str]:
    """Return the arguments that make this request; each as one, since it may begin with a dash."""
    return [*_of_source(request), *_others(request)]


def _of_source(request: ImportRequest) -> Iterator[str]:
    source = request.source
    if isinstance(source, JdbcSource):
        yield f"--source={source.url}"
        yield f"--table={source.table}" if source.table else f"--query={source.query}"
    else:
        yield from (f"--source={source.location}", f"--format={source.format}")


def _others(request: ImportRequest) -> Iterator[str]:
    yield f"--who={request.who}"
    if request.is_applied:
        yield "--apply"
    if request.import_id is not None:
        yield f"--id={request.import_id}"
    if request.max_closed is not None:
        yield f"--max-closed={request.max_closed!r}"
    if request.why is not None:
        yield f"--why={request.why}"
