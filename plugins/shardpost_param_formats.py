"""Formats of DAG params that JSON schema does not know, such as an ISO week.

Airflow checks params when a run is triggered, and answers with what a check raises. Its own checks
know no week 53, and what they say is a regular expression. Airflow imports this file as the module
`shardpost_param_formats`, for DAGs, scheduler and UI alike; where it has not, the format checks
nothing. Formats are those of the whole process, and of the DAGs of others: hence the prefix.
"""

from collections.abc import Callable

from jsonschema import FormatChecker, ValidationError

from shardpost.errors import UsageError
from shardpost.rebuilds.rebuild_job import tables_of
from shardpost.weekly_email import email_job
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.wording import parse_share

ISO_WEEK = "shardpost-iso-week"
SHARDS = "shardpost-shards"
SHARE = "shardpost-share"
TABLES = "shardpost-tables"


def _check(
    parse: Callable[[str], object], *, may_be_empty: bool = True
) -> Callable[[object], bool]:
    """Return the check of a text by the function that reads it; an empty one is not given."""

    def check(value: object) -> bool:
        if not isinstance(value, str) or (may_be_empty and not value):
            return True  # its type is checked by itself
        try:
            parse(value)
        except UsageError as error:
            raise ValidationError(str(error)) from None
        return True

    return check


FormatChecker.checkers[ISO_WEEK] = (_check(IsoWeek.parse, may_be_empty=False), ())
FormatChecker.checkers[SHARDS] = (_check(email_job.require_shard_form), ())
FormatChecker.checkers[SHARE] = (_check(parse_share), ())
FormatChecker.checkers[TABLES] = (_check(tables_of), ())
