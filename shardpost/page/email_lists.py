"""The lists of a week's last dry run: who would get a mail, who not and why, who is new or left."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from shardpost.instants import parse_instant
from shardpost.page.access import EMAILS, sees
from shardpost.page.rendering import HEADERS, ROWS_OF_A_PAGE, Link, Listing
from shardpost.page.request import CurrentRequest, PageNumber, PageRequest, Required
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.dry_runs import DryRunList

router = APIRouter(prefix="/emails/lists", dependencies=[sees(EMAILS)])

NONE_MADE = "No dry run of this week is kept. One can be started below; it sends nothing."


@router.get("")
def lists(
    visit: CurrentRequest,
    week: Required,
    kind: Annotated[str, Query(alias="list")] = "recipients",
    q: str = "",
    page: PageNumber = 1,
) -> Response:
    """Show one list of the week's last dry run, a page of it, or those with a text in their id."""
    from shardpost.errors import UsageError
    from shardpost.weekly_email import dry_runs
    from shardpost.weekly_email.dry_runs import MEANS, DryRunList, DryRunLists

    if kind not in [*DryRunList]:
        raise UsageError(f"list {kind!r}: expected one of {', '.join(DryRunList)}")
    chosen = DryRunList(kind)
    kept = dry_runs.find(visit.installation.tables, IsoWeek.parse(week))
    found = kept or DryRunLists({}, ())
    if visit.request.query_params.get("format") == "csv":
        return _as_csv(f"dry-run-{IsoWeek.parse(week)}-{kind}.csv", chosen, found.lines(chosen, q))
    lines = [*islice(found.lines(chosen, q, (page - 1) * ROWS_OF_A_PAGE), ROWS_OF_A_PAGE)]
    rows = [_row(visit, week, line) for line in lines]
    empty = f"Nobody {MEANS[chosen].replace('are ', 'is ').replace('have ', 'has ')}."
    total = found.count(chosen, q)
    listing = Listing(_columns(chosen), rows, empty if kept else NONE_MADE, total, page)
    document = {"dry_run": kept and kept.about, "list": kind, "lines": lines}
    made = kept and {**kept.about, "made_at": parse_instant(kept.about["made_at"])}
    return visit.answer(
        "emails_lists.html", document, listing, week=week, kind=kind, q=q, kept=made, means=MEANS
    )


def _columns(kind: "DryRunList") -> Sequence[str]:
    return ["address" if field == "email" else field for field in kind.fields]


def _row(visit: PageRequest, week: str, line: Any) -> Sequence[Any]:
    client, *rest = _cells(line)
    return (Link(client, visit.url("emails/mail", week=week, client=client)), *rest)


def _cells(line: Any) -> Sequence[Any]:
    values = [line] if isinstance(line, str) else line.values()
    return [", ".join(value) if isinstance(value, list) else value for value in values]


def _as_csv(name: str, kind: "DryRunList", lines: Iterable[Any]) -> Response:
    """Return the whole list, piece by piece: it may be of a million."""

    def pieces() -> Iterator[str]:
        yield Listing(_columns(kind), ()).as_csv()
        for line in lines:
            yield Listing((), [_cells(line)]).as_csv().removeprefix("\r\n")

    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces(), media_type="text/csv", headers=headers)
