"""What is known of a Spark job before it starts, and the document that it is given its request in.

DAGs import this module: it imports nothing heavy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from shardpost.errors import ShardpostError, UsageError
from shardpost.installation import Installation

# The outcome of a job: its exit code (shardpost.errors) and its JSON document.
JobResult = tuple[int, dict[str, Any]]
# The document of a request that is as it is by default.
BY_DEFAULT = "{}"
T = TypeVar("T")


def document_of(request: object, *, with_now: bool = True) -> str:
    """Return a request, a dataclass, as one JSON document without what is as by default.

    Without its field `now`, the job takes the time at which it starts. UsageError for a text that
    is no Unicode.
    """
    try:
        made = TypeAdapter(type(request)).dump_json(
            request, exclude=None if with_now else {"now"}, exclude_defaults=True
        )
    except PydanticSerializationError:
        raise UsageError(f"expected text in UTF-8, found {request!r}") from None
    return made.decode()


# Of the result of a run that stays.
FOLLOWING = "following"
# Spark's configuration has it in the driver of such a run.
STAYS = "spark.shardpost.stays"


def request_of(kind: type[T], document: str) -> T:
    """Return the request that `document_of` wrote; UsageError, naming all fields that are wrong."""
    try:
        return TypeAdapter(kind).validate_json(document, extra="forbid")
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise UsageError(f"request {document}: {'; '.join(wrong)}") from None


# From this many records on, the JVM's optimising compiler pays for itself.
LONG_RUN_RECORDS = 500_000


@dataclass(frozen=True)
class JobSpec:
    """One job: the stem of its file in `spark_jobs/`, which is its DAG's id too.

    `unread_records` counts what it would read now; with `has_own_class_archive` it loads half as
    many classes again as other jobs do (class_archive.py). `more_jars` are files of `ivy/`, beside
    Spark's own. `without_spark` does the job in the calling process, by its request, where that
    needs no Spark: starting Spark takes seconds. Else it changes nothing and returns None. `stays`
    tells of a request whether its run stays: it ends by itself when it is asked to stop.
    """

    name: str
    # Not in the repr, whose address of a function would make each parsing a new version of a DAG.
    unread_records: Callable[[Installation], int] = field(default=lambda _: 0, repr=False)
    has_own_class_archive: bool = False
    more_jars: tuple[str, ...] = ()
    without_spark: Callable[[Installation, str], JobResult | None] = field(
        default=lambda *_: None, repr=False
    )
    stays: Callable[[str], bool] = field(default=lambda _: False, repr=False)

    def is_long(self, installation: Installation) -> bool:
        """Tell whether it would read LONG_RUN_RECORDS or more; False where that cannot be known."""
        try:
            return self.unread_records(installation) >= LONG_RUN_RECORDS
        except ShardpostError:
            return False  # the job itself reports the error

    def result_without_spark(self, installation: Installation, request: str) -> JobResult | None:
        """Do it in this process if it needs no Spark; ShardpostError for errors of tables, too."""
        from shardpost.delta.query import table_errors
        from shardpost.locks import refused_runs  # heavy: DAGs import this module

        with refused_runs.noting(installation.files, self.name), table_errors():
            result = self.without_spark(installation, request)
        if result:
            refused_runs.note_result(installation.files, self.name, *result)
        return result
