"""Who holds: a condition over a position and the country of its exchange (SHARDPOST_HOLDS).

Its language is what Spark, DataFusion and this module read with the same result: comparisons of
names and literals, IN, LIKE, AND, OR, NOT, and whether the country is known. Texts are compared by
their bytes, `amount` as a 64-bit float. docs/decisions/0047 says why there is no more.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, NoReturn

from shardpost.wording import meant

_TEXT, _NUMBER = "a text", "a number"
# {name: its type}: of the position, and the country of its exchange, null if that is not known.
TYPES = dict.fromkeys(("position", "client", "ticker", "exchange", "country"), _TEXT)
TYPES |= {"amount": _NUMBER}

Value = str | float | None
Values = Mapping[str, Value]
# Tells whether values meet a condition; None where one that it needs is not known.
Test = Callable[[Values], bool | None]


@dataclass(frozen=True)
class Condition:
    """A condition as SQL, with its names in braces, and as Python; `parts` are joined by AND."""

    sql: str
    is_met: Test
    parts: tuple["Condition", ...] = ()

    def __str__(self) -> str:
        return self.sql.format_map(dict(zip(TYPES, TYPES, strict=True)))


def _is_like(text: str, pattern: str) -> bool:
    wild = {"%": ".*", "_": "."}
    regex = "".join(wild.get(one) or re.escape(one) for one in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


_TESTS: dict[str, Callable[..., bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "LIKE": _is_like,
    "IN": lambda one, *several: one in several,
}


class _Operand(NamedTuple):
    sql: str
    type: str
    value: Callable[[Values], Value]


def _compared(word: str, first: _Operand, *others: _Operand) -> Condition:
    def is_met(values: Values) -> bool | None:
        found = [one.value(values) for one in (first, *others)]
        return None if None in found else _TESTS[word](*found)

    listed = ", ".join(one.sql for one in others)
    return Condition(f"{first.sql} {word} {f'({listed})' if word == 'IN' else listed}", is_met)


def _joined(word: str, parts: Sequence[Condition]) -> Condition:
    deciding = word == "OR"

    def is_met(values: Values) -> bool | None:
        found = {part.is_met(values) for part in parts}
        return deciding if deciding in found else None if None in found else not deciding

    sql = f" {word} ".join(part.sql for part in parts)
    return Condition(sql, is_met, () if deciding else (*parts,))


def _negated(part: Condition) -> Condition:
    def is_met(values: Values) -> bool | None:
        return None if (found := part.is_met(values)) is None else not found

    return Condition(f"NOT {part.sql}", is_met)


_CONTACT = "contacts may be erased, and a subscription is asked for when a mail is sent"
_INSTEAD = {
    **dict.fromkeys(("name", "email", "subscribed"), f"who holds cannot depend on it: {_CONTACT}"),
    **dict.fromkeys(("upper", "lower"), "SHARDPOST_INPUTS can change values as they come in"),
    "between": "write >= and <=",
    "null": "write country IS NULL; nothing else is ever null",
}
_WORDS = ("AND", "OR", "NOT", "IN", "LIKE", "IS", "TRUE", "FALSE")
# Of texts, those that both engines read as they are; of numbers, those that a float has exactly.
_TOKEN = re.compile(
    r"(?P<text>'[^'\\$]*')|(?P<number>-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w.]))"
    r"|(?P<word>[^\W\d]\w*|[<>]=|<>|!=|[=<>(),])|(?P<other>\S)|(?P<end>\Z)"
)
# What becomes of a position whose exchange has no country.
COUNTRY_UNKNOWN = "for nobody, unless SHARDPOST_HOLDS takes stock without a country"
# Engines read long and deep conditions by recursion.
LONGEST, MOST_NESTED = 4000, 20
_NESTING = re.compile(r"\(|\bNOT\b", re.IGNORECASE)


class _Parser:
    """Reads one condition; ValueError says where it expected what."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST or len(_NESTING.findall(text)) > MOST_NESTED:
            most = f"{LONGEST} characters, and {MOST_NESTED} of NOT and ("
            raise ValueError(f"expected at most {most}, found more")
        self._tokens = [*_TOKEN.finditer(text)]

    def condition(self) -> Condition:
        """Return what the whole text says."""
        found = self._either()
        if self._tokens[0].lastgroup != "end":
            self._refuse("AND, OR or the end")
        return found

    def _took(self, *words: str) -> str:
        """Take a keyword or sign, if it is one of these, and return it; else nothing."""
        token = self._tokens[0]
        word = {"!=": "<>"}.get(token[0], token[0].upper()) if token.lastgroup == "word" else ""
        return word if word in words and self._tokens.pop(0) else ""

    def _need(self, *words: str) -> str:
        return self._took(*words) or self._refuse(" or ".join(words))

    def _refuse(self, expected: str) -> NoReturn:
        token = self._tokens[0]
        found = f"{token[0]!r} at character {token.start() + 1}" if token[0] else "the end"
        instead, is_known = _INSTEAD.get(token[0].lower()), token[0].upper() in _WORDS
        hint = f": {instead}" if instead else "" if is_known else meant(token[0], [*TYPES, *_WORDS])
        raise ValueError(f"expected {expected}, found {found}{hint}")

    def _either(self) -> Condition:
        return self._chain("OR", lambda: self._chain("AND", self._one))

    def _chain(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._took(word):
            parts.append(part())
        return _joined(word, parts) if len(parts) > 1 else parts[0]

    def _one(self) -> Condition:
        if self._took("NOT"):
            return _negated(self._one())
        if self._took("("):
            found = self._either()
            self._need(")")
            return Condition(f"({found.sql})", found.is_met)
        if word := self._took("TRUE", "FALSE"):
            return Condition(word, lambda _: word == "TRUE")
        return self._comparison()

    def _comparison(self) -> Condition:
        left = self._operand()
        if left.sql == "{country}" and self._took("IS"):
            is_not = self._took("NOT")
            self._need("NULL")
            known = Condition("{country} IS NULL", lambda values: values["country"] is None)
            return _negated(known) if is_not else known
        is_not = self._took("NOT")
        word = self._need(*("IN", "LIKE") if is_not else _TESTS)
        if word == "LIKE" and (left.type != _TEXT or self._tokens[0].lastgroup != "text"):
            self._refuse("a text to be LIKE a pattern in quotes")
        if word == "IN":
            self._need("(")
        others = [self._operand(left)]
        while word == "IN" and not self._took(")"):
            self._need(",", ")")
            others.append(self._operand(left))
        found = _compared(word, left, *others)
        return _negated(found) if is_not else found

    def _operand(self, other: _Operand | None = None) -> _Operand:
        """Take a name or a literal, of the type of another one if there is one."""
        kind, text = self._tokens[0].lastgroup, self._tokens[0][0]
        name = text.lower()
        if kind == "text":
            own = text.replace("{", "{{").replace("}", "}}")
            found = _Operand(own, _TEXT, lambda _: text[1:-1])
        elif kind == "number":
            unsigned = text if float(text) else "0"  # IN tells a negative zero from zero
            found = _Operand(unsigned, _NUMBER, lambda _: float(text))
        elif kind == "word" and name in TYPES:
            found = _Operand(f"{{{name}}}", TYPES[name], lambda values: values.get(name))
        else:
            names = ", ".join(TYPES)
            self._refuse(f"a name ({names}), a number, or a 'text' that has no ' \\ or $")
        if other and found.type != other.type:
            self._refuse(f"{other.type} to compare with {other.sql.strip('{}')}")
        self._tokens.pop(0)
        return found


@lru_cache(maxsize=64)
def parsed(text: str) -> Condition:
    """Return the condition of a text; ValueError says where it expected what."""
    return _Parser(text).condition()


@dataclass(frozen=True, eq=False)
class Rule:
    """Who holds: by a condition, or without one whoever holds stock of the country.

    The country is also what mails call the stock, and tells no rules of one condition apart.
    """

    country: str
    holds: str | None = None

    @property
    def name(self) -> str:
        """What tells it from other rules: its condition, or the country."""
        return self.holds or self.country

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.holds or f"country {self.country}"
