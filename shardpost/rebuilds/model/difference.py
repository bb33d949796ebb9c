"""What two sets of tables differ in, at the same offsets."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Differences:
    """How many keys both have, equal or changed, and only one of them."""

    equal: int = 0
    changed: int = 0
    only_old: int = 0
    only_new: int = 0

    @property
    def different(self) -> int:
        """How many are not equal."""
        return self.changed + self.only_old + self.only_new

    @property
    def share(self) -> float:
        """Which share of all is not equal: 0 to 1."""
        return self.different / max(self.equal + self.different, 1)

    def in_words(self) -> str:
        """Return the counts as one line."""
        return ", ".join(f"{n:,} {name.replace('_', ' in the ')}" for name, n in vars(self).items())


@dataclass(frozen=True)
class Difference:
    """The differences of open positions and of holders, and some of them with their records.

    `old` and `new` say what was compared.
    """

    old: dict[str, Any]
    new: dict[str, Any]
    positions: Differences
    holders: Differences
    samples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """Whether nothing differs."""
        return not (self.positions.different or self.holders.different)

    @property
    def share(self) -> float:
        """The larger share of the two that is not equal."""
        return max(self.positions.share, self.holders.share)

    def as_json(self) -> dict[str, Any]:
        """Return it in the contract's form."""
        return vars(self) | {"positions": vars(self.positions), "holders": vars(self.holders)}

    def lines(self) -> list[str]:
        """Return it in words, the samples too."""
        return [*self.counts_in_words(), *map(self.in_words, self.samples)]

    def counts_in_words(self) -> list[str]:
        """Return what was compared, and the counts, in words."""
        return [
            f"old: {_side(self.old)}",
            f"new: {_side(self.new)}",
            f"open positions: {self.positions.in_words()}",
            f"holders: {self.holders.in_words()}",
        ]

    @staticmethod
    def in_words(sample: dict[str, Any]) -> str:
        """Return a sample as one line."""
        what = next(name for name in ("position", "client") if name in sample)
        line = f"{what} {sample[what]}: {sample['difference'].replace('_', ' in the ')}"
        line += f": old {_value(sample['old'])}, new {_value(sample['new'])}"
        records = "; ".join(
            f"{one['position']} by {one['topic']}[{one['partition']}]@{one['offset']},"
            f" {one['exchange']} is {one['country']}"
            for one in sample.get("records", ())
        )
        return f"{line} ({records})" if records else line


def _side(side: dict[str, Any]) -> str:
    return f"snapshot {side['snapshot']}, country {side['country']}, {', '.join(side['tables'])}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    at = f"{value['topic']}[{value['partition']}]@{value['offset']}"
    return " ".join(
        [*(str(value[name]) for name in ("client", "ticker", "amount", "exchange")), at]
    )
