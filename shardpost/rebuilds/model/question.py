"""What a person is asked before rebuilt tables are swapped, in Markdown."""

from shardpost.printable import one_line
from shardpost.rebuilds.model.difference import TITLES, Difference, Differences

SAMPLES = 5  # of positions, as many of holders, and of all else
LINE = 240  # characters of a sample: a client may hold very much


def question(number: int, found: Difference) -> str:
    """Return what rebuild `number` changes, and what the answers mean."""
    old, new = found.old, found.new
    return "\n".join(
        [
            f"Rebuild {number}, country {new['country']}, compared with the tables in use, country"
            f" {old['country']}, key by key, at snapshot {new['snapshot']}:",
            "",
            "| | equal | changed | only in the old | only in the new | share that differs |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *(_row(TITLES[name], counts) for name, counts in found.counts.items()),
            "",
            *_sampled(found),
            "- **Swap** adds what came since, puts the new tables in use by one commit, and"
            " publishes whose list differs. The old ones are kept: `shardpost rebuild rollback`, or"
            " this DAG with **Action** rollback.",
            "- **Drop** gives the new tables up. Nothing else changes.",
            "",
            "Until you answer, compactions and e-mails go on with the tables in use.",
        ]
    )


def samples(found: Difference) -> list[str]:
    """Return some of what differs, a line each, as long as a person reads it."""
    of_positions = [one for one in found.samples if "position" in one][:SAMPLES]
    of_holders = [one for one in found.samples if "client" in one][:SAMPLES]
    others = [one for one in found.samples if not {"position", "client"} & {*one}][:SAMPLES]
    return [_short(found.in_words(one)) for one in of_positions + of_holders + others]


def _row(name: str, counts: Differences) -> str:
    numbers = (f"{n:,}" for n in vars(counts).values())
    return f"| {name} | {' | '.join(numbers)} | {counts.share:.2%} |"


def _sampled(found: Difference) -> list[str]:
    if not (lines := samples(found)):
        return ["Nothing differs.", ""]
    # Airflow shows a block of code as one line, so each is a piece of code; none may end its own.
    pieces = (line.replace("`", "'") for line in lines)
    listed = [f"- `{piece}`" for piece in pieces]
    return ["Some of it (`shardpost rebuild diff` has more):", "", *listed, ""]


def _short(line: str) -> str:
    line = one_line(line)
    return line if len(line) <= LINE else f"{line[: LINE - 1]}…"
