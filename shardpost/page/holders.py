"""Who holds, in which positions, and which records put or took them."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from shardpost.page.access import POSITIONS, sees
from shardpost.page.rendering import Asked, Link, page_of

router = APIRouter(prefix="/holders", dependencies=[sees(POSITIONS)])
NOBODY = "Nobody holds any. `shardpost compact`, or the DAG compact_positions, reads new positions."


@router.get("")
def holders(visit: Asked, page: Annotated[int, Query(ge=1)] = 1) -> Response:
    """Show who holds, client by client."""
    from shardpost import tables

    found = tables.holders(settings=visit.settings)
    rows = [
        (Link(client, visit.url("holders/client", client=client)), ", ".join(ids))
        for client, ids in found.items()
    ]
    return visit.answer("holders.html", found, page_of(rows, ("client", "positions"), page, NOBODY))
