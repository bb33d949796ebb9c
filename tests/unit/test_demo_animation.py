"""The animation of the demo: one SVG without anything foreign, that shows line after line."""

import runpy
import xml.etree.ElementTree as ET

from shardpost.checkout import CHECKOUT

ANIMATION = runpy.run_path(str(CHECKOUT / "docs" / "demo_animation.py"))
LINE, ROWS, COLUMNS = ANIMATION["Line"], ANIMATION["ROWS"], ANIMATION["COLUMNS"]
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str | None]:
    root = ET.fromstring(svg)  # noqa: S314 - made here
    return [one.text for one in root.iter(f"{SVG}text")][1:]  # without its title


def test_each_line_is_there_once_as_text_and_long_ones_are_cut() -> None:
    lines = [LINE(1.0, "  From: <a&b@x.example>"), LINE(2.0, ""), LINE(3.0, "x" * 200)]
    svg = ANIMATION["animation"](lines)
    assert texts(svg) == [
        "$ shardpost demo",
        "  From: <a&b@x.example>",
        f"{'x' * (COLUMNS - 1)}…",
    ]
    assert not any(word in svg for word in ("<script", "href", "url(http", "@import"))


def test_long_waits_are_shortened_and_short_ones_can_be_read() -> None:
    lines = [LINE(at, text) for at, text in ((0, "a"), (0, "b"), (60, "c"), (60, ""))]
    shown, duration = ANIMATION["shortened"](lines)
    assert shown == [0, 0.09, 0.09 + 1.4, 0.09 + 1.4 + 0.5]
    assert duration == shown[-1] + ANIMATION["LAST_WAIT"]


def test_without_animation_the_end_is_shown() -> None:
    svg = ANIMATION["animation"]([LINE(number, "x") for number in range(100)])
    assert f".text {{ transform: translateY({-(101 + 1 - ROWS) * 19}px);" in svg
    assert "prefers-reduced-motion: reduce" in svg


def test_the_one_in_the_documents_is_small() -> None:
    picture = CHECKOUT / "docs" / "pictures" / "demo.svg"
    assert picture.stat().st_size < 200_000
    assert texts(picture.read_text())[0] == "$ shardpost demo"
