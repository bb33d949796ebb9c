"""What reading or writing a table can raise, as the one line that a person gets."""

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError
from pyarrow.lib import ArrowException

from shardpost.errors import ShardpostError


@contextmanager
def table_errors() -> Iterator[None]:
    """Raise what tables raise, such as that a disk is full, as ShardpostError."""
    try:
        yield
    except (OSError, DeltaError, ArrowException) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ShardpostError(f"the tables could not be read or written: {line}") from error
