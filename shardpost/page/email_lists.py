"""The lists of a week's last dry run: who would get a mail, who not and why, who is new or left."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from shardpost.page.access import EMAILS, sees
from shardpost.page.rendering import HEADERS, ROWS_OF_A_PAGE, Asked, Link, Listing, Visit
from shardpost.weekly_email.model.week import IsoWeek

if TYPE_CHECKING:
    from shardpost.weekly_email.dry_run_lists import DryRunList
    from shardpost.weekly_email.kept_dry_runs import KeptDryRun

router = APIRouter(prefix="/emails/lists", dependencies=[sees(EMAILS)])

MEANS = {
    "recipients": "would get a mail",
    "suppressed": "would become suppressed",
    "failed": "would become failed",
    "unchanged": "would stay as they are",
    "new": "are new",
    "left": "have left",
}
NONE_MADE = "No dry run of this week is kept. One can be started below; it sends nothing."


@router.get("")
def lists(
    visit: Asked,
    week: Annotated[str, Query(min_length=1)],
    kind: Annotated[str, Query(alias="list")] = "recipients",
    q: str = "",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """Show one list of the week's last dry run, a page of it, or those with a text in their id."""
    from shardpost.errors import UsageError
    from shardpost.weekly_email import kept_dry_runs
    from shardpost.weekly_email.dry_run_lists import DryRunList

    if kind not in MEANS:
        raise UsageError(f"list {kind!r}: expected one of {', '.join(MEANS)}")
    chosen = DryRunList(kind)
    kept = kept_dry_runs.find(visit.settings, IsoWeek.parse(week))
    columns = _columns(chosen)
    if kept is None:
        return _answer(visit, week, kind, q, None, Listing(columns, (), NONE_MADE))
    if visit.request.query_params.get("format") == "csv":
        return _as_csv(visit, kept, chosen, q)
    first = (page - 1) * ROWS_OF_A_PAGE
    total, lines = kept_dry_runs.page(visit.settings, kept, chosen, first, ROWS_OF_A_PAGE, q)
    rows = [_row(visit, week, line) for line in lines]
    empty = f"Nobody {MEANS[kind].replace('are ', 'is ').replace('have ', 'has ')}."
    listing = Listing(columns, rows, empty, total=total, number=page)
    return _answer(visit, week, kind, q, kept, listing, lines)


def _answer(
    visit: Visit,
    week: str,
    kind: str,
    q: str,
    kept: "KeptDryRun | None",
    listing: Listing,
    lines: Sequence[Any] = (),
) -> Response:
    document = {"dry_run": kept and kept.as_json(), "list": kind, "lines": list(lines)}
    return visit.answer(
        "emails_lists.html", document, listing, week=week, kind=kind, q=q, kept=kept, means=MEANS
    )


def _columns(kind: "DryRunList") -> tuple[str, ...]:
    if kind in ("new", "left"):
        return ("client",)
    if kind == "recipients":
        return ("client", "shard", "address", "positions")
    return ("client", "shard", "reason")


def _row(visit: Visit, week: str, line: Any) -> Sequence[Any]:
    client, *rest = _cells(line)
    return (Link(client, visit.url("emails/mail", week=week, client=client)), *rest)


def _cells(line: Any) -> Sequence[Any]:
    if isinstance(line, str):
        return (line,)
    if "positions" in line:
        return (line["client"], line["shard"], line["email"], ", ".join(line["positions"]))
    return (line["client"], line["shard"], line["reason"])


def _as_csv(visit: Visit, kept: "KeptDryRun", kind: "DryRunList", q: str) -> Response:
    """Return the whole list, piece by piece: it may be of a million."""
    from shardpost.weekly_email import kept_dry_runs

    def pieces() -> Iterator[str]:
        yield Listing(_columns(kind), ()).as_csv()
        for line in kept_dry_runs.all_lines(visit.settings, kept, kind, q):
            _, _, row = Listing((), [_cells(line)]).as_csv().partition("\r\n")
            yield row

    name = f"dry-run-{kept.week}-{kind}.csv"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(pieces(), media_type="text/csv", headers=headers)
