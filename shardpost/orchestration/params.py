"""The params of a run, beyond what Airflow checks by itself."""

from collections.abc import Mapping

from shardpost.errors import UsageError
from shardpost.printable import one_line


def require_known(given: Mapping[str, object] | None, params: Mapping[str, object]) -> None:
    """Raise UsageError for a param that there is not: Airflow would ignore it."""
    if unknown := sorted((given or {}).keys() - params.keys()):
        raise UsageError(
            f"{', '.join(map(one_line, unknown))}: no such param; expected {', '.join(params)}"
        )
