"""What the pages are made of: tables from macros, and the charts that page.js draws of them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from shardpost.page.rendering import FOLDER, Link, Listing, environment
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


def drawn(page: Page, listing: Listing, *, bars: bool = False) -> Any:
    """Return what Plotly is given for a chart of a table."""
    chart = '{{ m.chart("Found", listing.columns[1:], "a chart", bars) }}'
    given = {"listing": listing, "bars": bars, "visit": SimpleNamespace(now=T0)}
    text = f'{MACROS}{chart}{{{{ m.table(listing, "Found") }}}}'
    show(page, environment().from_string(text).render(given))
    [found] = page.evaluate("drawn")
    return found


def hours_shown(found: Any) -> float:
    begin, end = map(datetime.fromisoformat, found["layout"]["xaxis"]["range"])
    return (end - begin) / timedelta(hours=1)


def test_a_single_instant_has_an_hour_around_it(page: Page) -> None:
    assert hours_shown(drawn(page, Listing(("when", "hours"), [(T0, "5")]))) == 1


def test_other_charts_are_as_wide_as_what_they_show(page: Page) -> None:
    line = Listing(("when", "hours"), [(T0 + MINUTE, "6"), (T0, "5")])
    shards = Listing(("shard", "sent"), [(0, 5)])
    for listing, bars in ((line, False), (shards, True)):
        assert "range" not in drawn(page, listing, bars=bars)["layout"]["xaxis"]


def test_a_chart_shows_the_columns_of_its_table_in_order_also_where_they_have_nothing(
    page: Page,
) -> None:
    newest_first = [(T0 + MINUTE, 1_200, None), (T0, "0.5", "3")]
    [behind, late] = drawn(page, Listing(("when", "behind", "late"), newest_first))["data"]
    assert behind["x"] == late["x"] == [T0.isoformat(), (T0 + MINUTE).isoformat()]
    assert (behind["y"], late["y"]) == ([0.5, 1200], [3, None])
    weeks = [(Link("2026-W47", "w"), 3), (Link("2026-W46", "w"), None)]
    [sent] = drawn(page, Listing(("week", "sent"), weeks), bars=True)["data"]
    assert (sent["name"], sent["x"], sent["y"]) == ("sent", ["2026-W46", "2026-W47"], [None, 3])
    shards = drawn(page, Listing(("shard", "sent"), [(2, 5), (10, 6), (1, 4)]), bars=True)
    assert shards["data"][0]["x"] == ["1", "2", "10"]


def test_no_two_lines_of_a_chart_look_alike(page: Page) -> None:
    names = [str(number) for number in range(12)]
    rows = [(at, *range(12)) for at in (T0 + MINUTE, T0)]
    found = drawn(page, Listing(("when", *names), rows))
    colors = found["layout"]["colorway"]
    assert len({*colors, ""}) == len(colors) + 1
    looks = [
        (colors[number % len(colors)], one.get("line", {}).get("dash"))
        for number, one in enumerate(found["data"])
    ]
    assert len({*looks}) == 12


def rendered(listing: Listing) -> str:
    visit = SimpleNamespace(now=T0)
    text = MACROS + '{{ m.table(listing, "Found", about="what `it` is") }}'
    return environment().from_string(text).render(listing=listing, visit=visit)


def test_the_headings_of_numbers_stand_above_them(page: Page) -> None:
    rows = [("a", 1_000, None, Link("x1", "x"), "3 h 10 min"), ("b", None, None, 2, "12 s")]
    listing = Listing(("name", "rows", "nothing", "mixed", "late"), rows)
    page.set_viewport_size(WIDE)
    show(page, rendered(listing))
    aligned = "every => every.map(one => getComputedStyle(one).textAlign)"
    expected = ["left", "right", "left", "left", "right"]
    assert page.locator("th").evaluate_all(aligned) == expected


def test_a_click_on_a_heading_sorts_by_what_a_cell_means_and_what_has_nothing_is_last(
    page: Page,
) -> None:
    rows = [
        ("b2", 900, "1 min 5 s", 12_000, T0),
        ("b10", 1_000, "12 s", 700, T0 - MINUTE),
        ("a", None, "3 h", 5, None),
    ]
    columns = ("name", "rows", "late", "log bytes", "since")
    page.set_viewport_size(WIDE)
    show(page, rendered(Listing(columns, rows)))
    orders = {
        "name": ["a", "b2", "b10"],
        "rows": ["b2", "b10", "a"],
        "late": ["b10", "b2", "a"],
        "log bytes": ["a", "b10", "b2"],
        "since": ["b10", "b2", "a"],
    }
    for name, order in orders.items():
        page.get_by_role("button", name=name).click()
        assert page.locator("td:first-child").all_inner_texts() == order, name
        expect(page.locator("th[aria-sort=ascending]")).to_have_text(name)
    page.get_by_role("button", name="since").click()
    assert page.locator("td:first-child").all_inner_texts() == ["b2", "b10", "a"]
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "descending")


def test_help_is_opened_and_closed_by_the_keyboard(page: Page) -> None:
    show(page, rendered(Listing(("name",), [("a",)])))
    said = page.get_by_text("what it is")
    expect(said).not_to_be_visible()
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(said).to_be_in_viewport(ratio=1)
    page.keyboard.press("Escape")
    expect(said).not_to_be_visible()


@pytest.mark.parametrize(
    ("ago", "said"),
    [
        (timedelta(seconds=12), "12 s ago"),
        (timedelta(hours=3, minutes=59), "3 h ago"),
        (timedelta(minutes=-48, seconds=-5), "in 48 min"),
        (timedelta(days=40), None),
    ],
)
def test_times_are_said_alike_by_the_server_and_by_the_script(
    page: Page, ago: timedelta, said: str | None
) -> None:
    now = datetime.now(UTC)
    visit, at = SimpleNamespace(now=now), now - ago
    text = environment().from_string(MACROS + "{{ m.time(at) }}").render(visit=visit, at=at)
    said = said or f"{at:%Y-%m-%d}"
    assert f">{said}</time>" in text
    assert f'title="{at:%Y-%m-%d %H:%M:%S} UTC"' in text
    show(page, text)
    expect(page.locator("time")).to_have_text(re.compile(r"1\d s ago" if "12 s" in said else said))


def test_a_phone_shows_the_section_it_is_in_and_rows_as_cards(page: Page) -> None:
    links = [
        f'<a href="#"{" aria-current=page" if n == 7 else ""}>Section {n}</a>' for n in range(9)
    ]
    rows = [("x" * 400, "a_" * 100, "some words and more " * 5)]
    listing = Listing(("id", "setting", "found"), rows)
    table = rendered(listing)
    page.set_viewport_size(NARROW)
    show(page, f"<header><nav>{''.join(links)}</nav></header><main>{table}<p>{'y' * 400}</main>")
    current = page.locator("nav [aria-current]")
    expect(current).to_be_in_viewport(ratio=1)
    page.set_viewport_size(WIDE)
    page.set_viewport_size(NARROW)  # as a phone that is turned
    expect(current).to_be_in_viewport(ratio=1)
    assert page.evaluate("[scrollX, document.documentElement.scrollWidth]") == [0, NARROW["width"]]
    cells = page.locator("td").evaluate_all("every => every.map(one => one.clientWidth)")
    assert max(cells) <= NARROW["width"]
    assert min(cells) >= 300
    labels = "every => every.map(one => getComputedStyle(one, '::before').content)"
    assert page.locator("td").evaluate_all(labels) == ['"id"', '"setting"', '"found"']
