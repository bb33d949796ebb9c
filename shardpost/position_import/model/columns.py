"""The columns of a list: found by name in any case, all others ignored."""

from collections.abc import Sequence
from typing import NamedTuple

from shardpost.errors import ShardpostError
from shardpost.holders.model.fields import POSITION_FIELDS

POSITION_ID = "PositionId"
COLUMNS = (POSITION_ID, *(field.name for field in POSITION_FIELDS))


class FoundColumns(NamedTuple):
    """{the name of a column: its name in the list}, and those that are ignored, in their order."""

    names: dict[str, str]
    ignored: tuple[str, ...]


def find_columns(where: str, there: Sequence[str]) -> FoundColumns:
    """Return which columns a list has; ShardpostError, naming all, if some is missing or twice."""
    by_name: dict[str, list[str]] = {}
    for name in there:
        by_name.setdefault(name.strip().lower(), []).append(name)
    names: dict[str, str] = {}
    wrong = []
    for column in COLUMNS:
        found = by_name.get(column.lower(), [])
        if len(found) == 1:
            names[column] = found[0]
        elif found or _numbered(column, there):
            wrong.append(f"{column} is there more than once")
        else:
            wrong.append(f"{column} is missing")
    if wrong:
        expected = f"expected the columns {', '.join(COLUMNS)}, each once"
        raise ShardpostError(
            f"{where}: {expected}: {'; '.join(wrong)}; found {', '.join(there) or 'none'}"
        )
    return FoundColumns(names, tuple(name for name in there if name not in names.values()))


def _numbered(column: str, there: Sequence[str]) -> bool:
    """Tell whether Spark has put its place behind the name of a column that a header has twice."""
    return any(name.lower() == f"{column}{at}".lower() for at, name in enumerate(there))
