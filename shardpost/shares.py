"""A share of something, as people write it: `5%`, or `0.05`."""

from shardpost.errors import UsageError


def share(value: object) -> float:
    """Return a share from 0 to 1, which may be given as a percentage: `5%` or `0.05`."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("expected a percentage such as 5%, or a share from 0 to 1 such as 0.05")
    return number


def parse_share(text: str) -> float:
    """Return `share` of a text; UsageError for anything else."""
    try:
        return share(text)
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}") from None
