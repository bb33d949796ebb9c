"""The picture of the benchmarks' curves."""

from xml.etree import ElementTree

import pytest

from bench.picture import Curve, draw


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    square = Curve("square", [(10, 1.0), (100, 100.0), (1000, 10_000.0)])
    assert square.exponent == pytest.approx(2)


def test_every_point_and_name_is_in_the_picture() -> None:
    curves = [Curve("a < b", [(10, 1.0), (1000, 4.0)]), Curve("c", [(5, 2.0), (50, 30.0)])]
    root = ElementTree.fromstring(draw(curves))  # noqa: S314 - our own text
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 4
    assert all(0 < float(c.attrib["cx"]) < 720 and 0 < float(c.attrib["cy"]) < 420 for c in circles)
    texts = "".join(root.itertext())
    assert "a < b: exponent 0.30" in texts
    assert "c: exponent" in texts
