"""Parameters of addresses, which a form may leave empty; of a page none but its own."""

from datetime import datetime
from typing import Annotated, Any

from annotated_types import Ge, Le
from fastapi import Query, Request
from fastapi.dependencies.utils import get_flat_params
from pydantic import BeforeValidator

from shardpost.errors import UsageError
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


async def require_known(request: Request) -> None:
    """Refuse parameters and fields that a page does not have: a misspelt filter would mean all."""
    route, form = request.scope["route"], await request.form()
    asked = {"format", "said"}.union(one.alias for one in get_flat_params(route.dependant))
    body = route.body_field and route.body_field.field_info.annotation
    sent = {"token", *(body.model_fields if body else ())}
    for known, given in ((asked, request.query_params), (sent, form)):
        if unknown := sorted({*given} - known):
            names = ", ".join(sorted(known))
            raise UsageError(f"{unknown[0]}: expected one of {names}, found this parameter")
