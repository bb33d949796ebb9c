"""The benchmarks: their records, the plain fold of homes that grow old, the chart."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from xml.etree import ElementTree

import pytest

from bench import stream
from bench.picture import Curve, draw
from bench.plain_fold import Holdings
from bench.stream import Record, holders, records


def test_the_same_size_gives_the_same_records_and_more_of_them_go_on() -> None:
    whole = list(records(200, more=50))
    assert list(records(200)) == whole[:200]
    assert list(records(200, first=200, more=50)) == whole[200:]
    assert len({key for key, _, _ in whole}) == 40


def test_a_holder_holds_what_is_open_on_a_counting_exchange() -> None:
    def value(client: str, exchange: str) -> str:
        return f'{{"Client":"{client}","Exchange":"{exchange}"}}'

    stream = [
        ("10", value("a", "NASDAQ"), 0),
        ("9", value("a", "NYSE"), 1),
        ("8", value("a", "LON"), 2),
        ("7", value("b", "AMEX"), 3),
        ("7", None, 4),
    ]
    assert holders(iter(stream)) == {"a": [9, 10]}
    assert holders(islice(stream, 4)) == {"a": [9, 10], "b": [7]}


RECORDS = 2_000


@pytest.mark.parametrize("seed", range(5))
def test_holdings_are_those_of_a_fold_wherever_the_stream_is_cut(seed: int) -> None:
    holdings, read = Holdings(), 0
    for part in _cut(stream.records(RECORDS), Random(seed)):  # noqa: S311 - the same each time
        holdings.apply(part)
        read += len(part)
        assert _held(holdings) == stream.holders(stream.records(RECORDS, more=read - RECORDS))


def _held(holdings: Holdings) -> dict[str, list[int]]:
    return {client: sorted(map(int, ids)) for client, ids in holdings.held.items() if ids}


def _cut(records: Iterator[Record], random: Random) -> Iterator[list[Record]]:
    while part := [*islice(records, random.randint(1, 300))]:
        yield part


SVG = "{http://www.w3.org/2000/svg}"
CURVES = [Curve("a < b", [(10, 1.0), (1000, 4.0)]), Curve("c", [(5, 2.0), (50, 30.0), (500, 70.0)])]


@pytest.fixture(scope="module")
def chart() -> ElementTree.Element:
    return ElementTree.fromstring(draw(CURVES))  # noqa: S314 - our own text


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


def points_of(chart: ElementTree.Element, number: int) -> list[tuple[float, float]]:
    curve = next(group for group in chart.iter(f"{SVG}g") if group.get("id") == f"curve-{number}")
    return [(float(use.attrib["x"]), float(use.attrib["y"])) for use in curve.iter(f"{SVG}use")]
