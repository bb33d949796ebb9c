"""The records of the benchmarks: the same ones every time, and what a plain fold makes of them."""

from itertools import islice

from bench.stream import holders, records


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
