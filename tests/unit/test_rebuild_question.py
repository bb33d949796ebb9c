"""What a person is asked before a swap."""

from typing import Any

from shardpost.rebuilds.model.difference import (
    LINE,
    SAMPLES,
    Difference,
    Differences,
    question,
    samples,
)

OLD: dict[str, Any] = {"snapshot": 7, "country": "US", "tables": {"positions": 4}}
NEW: dict[str, Any] = {"snapshot": 7, "country": "GB", "tables": {"positions.2": 1}}


def holder(client: str, *ids: str) -> dict[str, Any]:
    return {
        "client": client,
        "difference": "only_new",
        "old": [],
        "new": [*ids],
        "records": [
            {
                "position": id_,
                "topic": "positions",
                "partition": 3,
                "offset": 41,
                "exchange": "LON",
                "country": "GB",
            }
            for id_ in ids
        ],
    }


def position(id_: str) -> dict[str, Any]:
    return {"position": id_, "difference": "only_old", "old": None, "new": None}


def test_it_has_the_counts_and_the_shares_and_a_sample() -> None:
    found = Difference(
        OLD, NEW, Differences(1200), Differences(3, 1, 0, 1), [holder("client1", "2")]
    )
    text = question(2, found)
    assert "Rebuild 2, country GB" in text
    assert "in use, country US, key by key, at snapshot 7:" in text
    assert "| open positions | 1,200 | 0 | 0 | 0 | 0.00% |" in text
    assert "| holders | 3 | 1 | 0 | 1 | 40.00% |" in text
    sample = "client client1: only in the new: old none, new 2 (2 by positions[3]@41, LON is GB)"
    assert f"\n- `{sample}`\n" in text


def test_it_says_that_nothing_differs() -> None:
    text = question(2, Difference(OLD, OLD, Differences(5), Differences(2)))
    assert "Nothing differs." in text
    assert "Some of it" not in text


def test_the_samples_are_as_many_and_as_long_as_a_person_reads() -> None:
    of_positions = [position(str(n)) for n in range(20)]
    of_holders = [holder(f"client{n}", *map(str, range(1000))) for n in range(20)]
    both = Differences(0, 20)
    lines = samples(Difference(OLD, NEW, both, both, of_positions + of_holders))
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["position"] * SAMPLES + ["client"] * SAMPLES
    assert max(map(len, lines)) == LINE
    assert lines[-1].endswith("…")


def test_a_name_can_neither_end_the_code_that_it_is_in_nor_begin_a_line() -> None:
    name = "x\n```\n# Swap!"
    text = question(2, Difference(OLD, NEW, Differences(), Differences(0, 1), [holder(name, "1")]))
    [line] = [line for line in text.splitlines() if "Swap!" in line]
    assert line.startswith("- `client x")
    assert line.endswith("`")
    assert line.count("`") == 2
