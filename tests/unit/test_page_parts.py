"""What the pages are made of: tables from macros, and what page.js makes of a chart's figure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page

from shardpost.page.charts import chart_of
from shardpost.page.rendering import FOLDER, environment
from tests.support.browser import NARROW, chromium

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
