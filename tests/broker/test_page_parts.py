"""What the pages are made of: tables from macros, and what page.js makes of a chart's figure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from shardpost.page.rendering import FOLDER, Link, Listing, chart_of, environment
from tests.support.browser import NARROW, WIDE, chromium

T0 = datetime(2026, 11, 26, 14, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MACROS = '{% import "macros.html" as m with context %}'
STUB = (
    "window.drawn = []; window.Plotly = {react: (_, data, layout) => drawn.push({data, layout})};"
)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page(viewport=NARROW)


def show(page: Page, body: str) -> None:
    """Show a page with our style and our script, without Plotly, and on no server."""
    static = FOLDER / "static"
    style, script = ((static / name).read_text() for name in ("page.css", "page.js"))
    page.goto("about:blank")
    page.set_content(f"<style>{style}</style><script>{STUB}{script}</script><body>{body}")


def drawn(page: Page, figure: dict[str, Any]) -> Any:
    """Return what Plotly is given for a figure."""
    text = MACROS + '{{ m.chart(figure, "a chart") }}'
    show(page, environment().from_string(text).render(figure=figure))
    [found] = page.evaluate("drawn")
    return found


def hours_shown(found: Any) -> float:
    begin, end = map(datetime.fromisoformat, found["layout"]["xaxis"]["range"])
    return (end - begin) / timedelta(hours=1)


def test_a_single_instant_has_an_hour_around_it(page: Page) -> None:
    line = chart_of({"group": [(T0, 5.0)]}, "hours")
    assert hours_shown(drawn(page, line)) == 1
    bar = {"data": [{"type": "bar", "x": [T0.isoformat()], "y": [5]}]}
    found = drawn(page, bar)
    assert hours_shown(found) == 1
    assert found["data"][0]["width"] == 30 * 60_000


def test_other_charts_are_as_wide_as_what_they_show(page: Page) -> None:
    line = chart_of({"group": [(T0, 5.0), (T0 + MINUTE, 6.0)]}, "hours")
    shards = {"data": [{"type": "bar", "x": [0], "y": [5]}]}
    empty: dict[str, Any] = {"data": []}
    for figure in (line, shards, empty):
        assert "range" not in drawn(page, figure)["layout"]["xaxis"]


def test_no_two_lines_of_a_chart_look_alike(page: Page) -> None:
    points = [(T0, 1.0), (T0 + MINUTE, 2.0)]
    found = drawn(page, chart_of({str(number): points for number in range(12)}, "bytes"))
    colors = found["layout"]["colorway"]
    assert len({*colors, ""}) == len(colors) + 1
    looks = [
        (colors[number % len(colors)], one.get("line", {}).get("dash"))
        for number, one in enumerate(found["data"])
    ]
    assert len({*looks}) == 12


def test_the_headings_of_numbers_stand_above_them(page: Page) -> None:
    rows = [("a", 1_000, None, Link("1", "x")), ("b", None, None, 2)]
    listing = Listing(("name", "rows", "nothing", "mixed"), rows)
    text = MACROS + '{{ m.table(listing, "Sizes") }}'
    show(page, environment().from_string(text).render(listing=listing))
    aligned = "every => every.map(one => getComputedStyle(one).textAlign)"
    assert page.locator("th").evaluate_all(aligned) == ["left", "right", "left", "left"]


def test_a_phone_shows_the_section_it_is_in_and_rows_as_low_as_they_can_be(page: Page) -> None:
    links = [
        f'<a href="#"{" aria-current=page" if n == 7 else ""}>Section {n}</a>' for n in range(9)
    ]
    rows = [("x" * 400, "a_" * 100, "some words and more " * 5)]
    listing = Listing(("id", "setting", "found"), rows)
    text = MACROS + '{{ m.table(listing, "Found") }}'
    table = environment().from_string(text).render(listing=listing)
    show(page, f"<header><nav>{''.join(links)}</nav></header><main>{table}<p>{'y' * 400}</main>")
    current = page.locator("nav [aria-current]")
    expect(current).to_be_in_viewport(ratio=1)
    page.set_viewport_size(WIDE)
    page.set_viewport_size(NARROW)  # as a phone that is turned
    expect(current).to_be_in_viewport(ratio=1)
    assert page.evaluate("[scrollX, document.documentElement.scrollWidth]") == [0, NARROW["width"]]
    cells = page.locator("td").evaluate_all("every => every.map(one => one.clientWidth)")
    assert max(cells) <= 320
    assert min(cells) >= 300
