"""The chart of the benchmarks' curves."""

from xml.etree import ElementTree

import pytest

from bench.picture import Curve, draw

SVG = "{http://www.w3.org/2000/svg}"
CURVES = [Curve("a < b", [(10, 1.0), (1000, 4.0)]), Curve("c", [(5, 2.0), (50, 30.0), (500, 70.0)])]


@pytest.fixture(scope="module")
def chart() -> ElementTree.Element:
    return ElementTree.fromstring(draw(CURVES))  # noqa: S314 - our own text


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    square = Curve("square", [(10, 1.0), (100, 100.0), (1000, 10_000.0)])
    assert square.exponent == pytest.approx(2)


def test_every_point_is_in_the_chart(chart: ElementTree.Element) -> None:
    width, height = map(float, chart.attrib["viewBox"].split()[2:])
    drawn = [points_of(chart, number) for number in range(len(CURVES))]
    assert [len(points) for points in drawn] == [2, 3]
    assert all(0 < x < width and 0 < y < height for points in drawn for x, y in points)


def test_both_axes_are_logarithmic(chart: ElementTree.Element) -> None:
    (x10, y1), (x1000, y4) = points_of(chart, 0)
    (x5, y2), (x50, y30), (x500, _) = points_of(chart, 1)
    assert x50 - x5 == pytest.approx(x500 - x50) == pytest.approx((x1000 - x10) / 2)
    assert y1 - y4 == pytest.approx(2 * (y1 - y2))
    assert y30 < y4  # more seconds are higher up


def test_every_name_is_in_the_chart_with_its_exponent(chart: ElementTree.Element) -> None:
    texts = [text.text for text in chart.iter(f"{SVG}text")]
    assert "a < b: exponent 0.30" in texts
    assert "c: exponent 0.77" in texts
    assert {"10", "100", "records", "seconds"} <= set(texts)


def test_the_same_curves_give_the_same_file() -> None:
    assert draw(CURVES) == draw(CURVES)


def points_of(chart: ElementTree.Element, number: int) -> list[tuple[float, float]]:
    curve = next(group for group in chart.iter(f"{SVG}g") if group.get("id") == f"curve-{number}")
    return [(float(use.attrib["x"]), float(use.attrib["y"])) for use in curve.iter(f"{SVG}use")]
