"""What Spark's readers and JDBC drivers raise, as one line that names the source."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from shardpost.errors import ShardpostError

MOST_CHARACTERS = 300
_DEEPEST = 20


@contextmanager
def source_errors(source: str) -> Iterator[None]:
    """Turn an error of reading that source into a ShardpostError."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ShardpostError(f"{source}: cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the first line of the cause that lies deepest."""
    texts = [str(error)]
    cause = _java_of(error)
    for _ in range(_DEEPEST):
        if cause is None:
            break
        texts.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    lines = [line for text in texts if (line := text.strip().split("\n", 1)[0].strip())]
    return lines[-1][:MOST_CHARACTERS]


def _java_of(error: Exception) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)
