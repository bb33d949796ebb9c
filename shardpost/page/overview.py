"""What needs a person now, and the numbers that each lead to their page."""

from fastapi import APIRouter
from fastapi.responses import Response

from shardpost.page.access import KAFKA, sees
from shardpost.page.rendering import Asked

router = APIRouter(dependencies=[sees(KAFKA)])


@router.get("/")
def overview(visit: Asked) -> Response:
    """Show the newest snapshot."""
    from shardpost import tables

    snapshot = tables.snapshot(settings=visit.settings)
    return visit.answer("overview.html", snapshot, snapshot=snapshot)
