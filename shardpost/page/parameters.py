"""Parameters of addresses that a form may leave empty."""

from datetime import datetime
from typing import Annotated, Any

from annotated_types import Ge, Le
from fastapi import Query
from pydantic import BeforeValidator

from shardpost.instants import parse_instant

MAX_OFFSET = 2**63 - 1


def _given(text: Any) -> Any:
    return text if text != "" else None


def _instant(text: Any) -> datetime | None:
    return parse_instant(text.strip()) if text else None


# None where the field was left empty; an instant without a zone is UTC.
Number = Annotated[Annotated[int, Ge(0), Le(MAX_OFFSET)] | None, BeforeValidator(_given), Query()]
Instant = Annotated[datetime | None, BeforeValidator(_instant), Query()]
Text = Annotated[str | None, BeforeValidator(_given), Query()]
Required = Annotated[str, Query(min_length=1)]
PageNumber = Annotated[int, Query(ge=1, le=10**9)]
