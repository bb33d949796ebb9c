"""The benchmarks: their records, the plain fold of homes that grow old, the chart."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

from bench import stream
from bench.ours import step_starts, steps
from bench.plain_fold import Holdings
from bench.spark_tasks import Use, by_part
from bench.stream import Record, holders, records
from shardpost.settings import Settings


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


LOG = """\
2026-11-25 10:00:00,000 INFO step: read
2026-11-25 10:00:10,000 INFO step: commit
2026-11-25 10:00:12,500 INFO step: publish
"""


def test_a_task_counts_in_the_part_in_which_it_began(tmp_path: Path) -> None:
    settings = Settings.model_validate({"home": tmp_path})
    [(at, _), *_] = step_starts(LOG)
    ran = [(1.0, 3.0, 5 << 20), (2.0, 4.0, 7 << 20), (9.0, 11.0, 0), (10.5, 11.5, 0)]
    events = [{"Event": "SparkListenerApplicationStart"}, *(_event(at, *task) for task in ran)]
    log = settings.folder("events") / "local-1"
    log.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert by_part(settings, LOG) == {
        "read": Use(tasks=3, seconds=6.0, busy=5.0, processor=1.5, memory=7, spilled=6, shuffled=9),
        "commit": Use(
            tasks=1, seconds=1.0, busy=1.0, processor=0.5, memory=0, spilled=2, shuffled=3
        ),
    }
    assert not log.exists()
    assert [*steps(LOG)] == [("read", 10.0), ("commit", 2.5)]


def _event(at: float, began: float, ended: float, memory: int) -> dict[str, object]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Task Info": {
            "Launch Time": int((at + began) * 1000),
            "Finish Time": int((at + ended) * 1000),
        },
        "Task Metrics": {
            "Peak Execution Memory": memory,
            "Executor CPU Time": 500_000_000,
            "Disk Bytes Spilled": 2_000_000,
            "Shuffle Write Metrics": {"Shuffle Bytes Written": 3_000_000},
        },
    }


SVG = "{http://www.w3.org/2000/svg}"
CURVES = {"a < b": [(10, 1.0), (1000, 4.0)], "c": [(5, 2.0), (50, 30.0), (500, 70.0)]}


@pytest.fixture(scope="module")
def chart() -> ElementTree.Element:
    from bench.picture import Curve, draw  # Matplotlib, which no other test needs

    curves = [Curve(*curve) for curve in CURVES.items()]
    return ElementTree.fromstring(draw(curves))  # noqa: S314 - our own text


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
