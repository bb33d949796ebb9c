"""How two sets of tables differ at the same offsets, and what a person is asked before a swap."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardpost.errors import single_line
from shardpost.values.holding_rule import Rule

# What else is compared, and the singular of its name.
OTHERS = {"clients": "contact", "exchanges": "exchange", "rejected": "rejected record"}
TITLES = {
    "positions": "open positions",
    "holders": "holders",
    "clients": "contacts",
    "exchanges": "exchanges",
    "rejected": "rejected records",
}
_NAMES = ("position", "client", *OTHERS.values())


@dataclass(frozen=True)
class Differences:
    """How many keys both sides have, equal or changed, and how many only one side has."""

    equal: int = 0
    changed: int = 0
    only_old: int = 0
    only_new: int = 0

    @property
    def different(self) -> int:
        """How many keys differ."""
        return self.changed + self.only_old + self.only_new

    @property
    def share(self) -> float:
        """The share of keys that differ: 0 to 1."""
        return self.different / max(self.equal + self.different, 1)

    def summary(self) -> str:
        """Return the counts as one line."""
        return ", ".join(f"{n:,} {name.replace('_', ' in the ')}" for name, n in vars(self).items())


@dataclass(frozen=True)
class Difference:
    """The differences of open positions, of holders and of OTHERS, and some of them.

    `old` and `new` say what was compared; `not_compared` is {name: why it was not}.
    """

    old: dict[str, Any]
    new: dict[str, Any]
    positions: Differences
    holders: Differences
    samples: list[dict[str, Any]] = field(default_factory=list)
    others: Mapping[str, Differences] = field(default_factory=dict)
    not_compared: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        """Whether nothing differs."""
        return not any(counts.different for counts in self.counts.values())

    @property
    def counts(self) -> dict[str, Differences]:
        """All that was compared, by name."""
        return {"positions": self.positions, "holders": self.holders, **self.others}

    @property
    def share(self) -> float:
        """The largest share that is not equal; what a rejected record changes is in the others."""
        return max(one.share for name, one in self.counts.items() if name != "rejected")

    def refusal(self, max_changed: float) -> str | None:
        """Return why nothing is swapped, if a larger share differs; else None."""
        if self.share <= max_changed:
            return None
        return f"{self.share:.2%} differ, more than {max_changed:.2%}: nothing was swapped"

    def as_json(self) -> dict[str, Any]:
        """Return it in the contract's form, and with the others."""
        counts = {name: vars(one) for name, one in self.counts.items()}
        found = {"old": self.old, "new": self.new, **counts, "samples": self.samples}
        why = {"not_compared": dict(self.not_compared)} if self.not_compared else {}
        return found | dict.fromkeys(self.not_compared) | why

    def lines(self) -> list[str]:
        """Return it in words, the samples too."""
        return [*self.count_lines(), *map(self.sample_line, self.samples)]

    def count_lines(self) -> list[str]:
        """Return what was compared, and the counts, in words."""
        return [
            f"old: {_side(self.old)}",
            f"new: {_side(self.new)}",
            *(f"{TITLES[name]}: {counts.summary()}" for name, counts in self.counts.items()),
            *self.lines_not_compared(),
        ]

    def lines_not_compared(self) -> list[str]:
        """Return what was not compared, and why, in words."""
        return [f"{TITLES[name]}: not compared: {why}" for name, why in self.not_compared.items()]

    @staticmethod
    def sample_line(sample: dict[str, Any]) -> str:
        """Return a sample as one line."""
        what = next(name for name in _NAMES if name in sample)
        line = f"{what} {sample[what]}: {sample['difference'].replace('_', ' in the ')}"
        if "columns" in sample:
            line += f" in {', '.join(sample['columns'])}"
        if sample["old"] != {}:
            line += f": old {_value(sample['old'])}, new {_value(sample['new'])}"
        records = "; ".join(
            f"{one['position']} by {one['topic']}[{one['partition']}]@{one['offset']},"
            f" {one['exchange']} is {one['country']}"
            for one in sample.get("records", ())
        )
        return f"{line} ({records})" if records else line


def rule_text(side: Mapping[str, Any]) -> str:
    """Return who holds in tables, of a JSON object that says it, as text."""
    return str(Rule(side["country"], side["holds"]))


def _side(side: dict[str, Any]) -> str:
    return f"snapshot {side['snapshot']}, {rule_text(side)}, {', '.join(side['tables'])}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if "topic" not in value:
        return ", ".join("none" if one is None else str(one) for one in value.values())
    values = " ".join(str(value[name]) for name in ("client", "ticker", "amount", "exchange"))
    return f"{values} {value['topic']}[{value['partition']}]@{value['offset']}"


SAMPLES = 5  # of positions, as many of holders, and of all else
LINE = 240  # characters of a sample: a client may hold very much


def question(number: int, difference: Difference) -> str:
    """Return what rebuild `number` changes, and what the answers mean."""
    old, new = difference.old, difference.new
    # Airflow shows a block of code as one line, so each is a piece of code; none may end its own.
    pieces = [line.replace("`", "'") for line in samples(difference)]
    sampled = ["Nothing differs."]
    if pieces:
        listed = (f"- `{piece}`" for piece in pieces)
        sampled = ["Samples (`shardpost rebuild diff` has more):", "", *listed]
    rows = (
        f"| {TITLES[name]} | {' | '.join(f'{n:,}' for n in vars(counts).values())} |"
        f" {counts.share:.2%} |"
        for name, counts in difference.counts.items()
    )
    return "\n".join(
        [
            f"Rebuild {number}, {rule_text(new)}, compared with the tables in use,"
            f" {rule_text(old)}, key by key, at snapshot {new['snapshot']}:",
            "",
            "| | equal | changed | only in the old | only in the new | share that differs |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            "",
            *(f"- {line}" for line in difference.lines_not_compared()),
            *sampled,
            "",
            "- **Swap** adds later records, puts the new tables in use with one commit, and"
            " publishes the lists that differ. The old tables are kept: `shardpost rebuild"
            " rollback`, or this DAG with **Action** rollback.",
            "- **Drop** removes the new tables. Nothing else changes.",
            "",
            "Until you answer, compactions and e-mails keep using the current tables.",
        ]
    )


def samples(difference: Difference) -> list[str]:
    """Return samples of what differs, one line each, as many as a person reads."""
    kinds = "position", "client", "other"
    shown: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for sample in difference.samples:
        shown[next((kind for kind in kinds if kind in sample), "other")].append(sample)
    some = (sample for of_kind in shown.values() for sample in of_kind[:SAMPLES])
    return [single_line(difference.sample_line(sample), LINE) for sample in some]
