"""The templates of the mail as values, and what they are given: numbers and dates by language.

A language is a tag such as `de`, `pt_BR` or `zh_Hant_TW`, of which Babel has the data; without one,
numbers and dates are as records have them.

A part of the mail is a file. `weekly_email.de.html` is `weekly_email.html` in German; what a
language has not, is that without a language, and what an installation has not, is the shipped one.
The samples are what templates are tried with before a run: every branch of the shipped ones.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache, partial
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from babel import Locale

# Where the setting names none, Babel's filters are those of this one.
ENGLISH = "en"
# The filters that are functions of Babel's, and in which of its modules they are.
OF_BABEL = {
    **dict.fromkeys(("format_decimal", "format_percent"), "numbers"),
    **dict.fromkeys(("format_date", "format_time", "format_datetime"), "dates"),
}
_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,3}")
MOST_DIGITS = 60
_NUMBER = re.compile(rf"(-?)([0-9]{{1,{MOST_DIGITS}}})(?:\.([0-9]{{1,{MOST_DIGITS}}}))?", re.ASCII)


@lru_cache(maxsize=4096)
def known_language(text: str) -> str | None:
    """Return the tag of a language as Babel has it, or of it without its region; None if none.

    Tags that mean the same give the same: zh_Hant_TW of zh-TW, he of iw.
    """
    if not _TAG.fullmatch(text):
        return None
    from babel import Locale, UnknownLocaleError

    for tag in (text, base_of(text)):
        try:
            found = Locale.parse(tag.replace("-", "_"))
            # Of a language that has another tag now, Babel's has a region that nobody named.
            return str(Locale(found.language, script=found.script) if tag.isalpha() else found)
        except (UnknownLocaleError, ValueError):
            continue
    return None


def base_of(language: str) -> str:
    """Return a language without its region: `de` of `de_AT`."""
    return re.split("[-_]", language, maxsplit=1)[0].lower()


@lru_cache
def lookups(language: str) -> tuple[str, ...]:
    """Return a tag and those that are less exact: zh_Hant_TW, zh_Hant, zh (RFC 4647, 3.4)."""
    parts = language.split("_")
    return tuple("_".join(parts[:count]) for count in range(len(parts), 0, -1))


@lru_cache
def _locale(language: str) -> "Locale":
    from babel import Locale

    return Locale.parse(language)


@lru_cache(maxsize=65_536)
def number_text(number: str, language: str) -> str:
    """Return a number in a language, with all of its digits; what is no plain number stays so."""
    match = _NUMBER.fullmatch(number)
    if match is None:
        return number
    from babel.numbers import format_decimal, get_decimal_symbol, get_minus_sign_symbol

    locale = _locale(language)
    sign, whole, digits = match.groups()
    with localcontext() as context:
        context.prec = 2 * MOST_DIGITS
        text: str = format_decimal(Decimal(whole), locale=locale)
    text = f"{get_minus_sign_symbol(locale)}{text}" if sign else text
    return text if digits is None else f"{text}{get_decimal_symbol(locale)}{digits}"


@lru_cache
def _iso_day(value: date) -> str:
    return f"{value:%A %Y-%m-%d}"


@dataclass(frozen=True)
class Filters:
    """The filters of templates in a language, by their names.

    `number`, `day` and `instant` are as the shipped templates have them: without a language as
    records do, and as ISO 8601. The others are Babel's, under its names.
    """

    language: str | None

    @property
    def _locale(self) -> "Locale":
        return _locale(self.language or ENGLISH)

    def number(self, value: object) -> str:
        """Return a number, with all of its digits."""
        return str(value) if self.language is None else number_text(str(value), self.language)

    def day(self, value: date) -> str:
        """Return a date with the day of the week."""
        if self.language is None:
            return _iso_day(value)
        return self.of_babel("format_date", value, "full")

    def instant(self, value: datetime) -> str:
        """Return a date and the time of day."""
        if self.language is None:
            return f"{_iso_day(value.date())} {value:%H:%M}"
        time = self.of_babel("format_time", value, "short")
        return f"{self.day(value)} {time}"

    def of_babel(self, name: str, value: object, format: str | None = None) -> str:  # noqa: A002 - Babel's
        """Return a value by a function of Babel's, in UTC, and by a pattern if one is given."""
        function = getattr(import_module(f"babel.{OF_BABEL[name]}"), name)
        given: dict[str, Any] = {} if format is None else {"format": format}
        if name == "format_decimal":
            given["decimal_quantization"] = False
        return str(function(value, locale=self._locale, **given))

    def as_dict(self) -> dict[str, Callable[..., str]]:
        """Return the filters as Jinja takes them."""
        own = {"number": self.number, "day": self.day, "instant": self.instant}
        return own | {name: partial(self.of_babel, name) for name in OF_BABEL}


SUBJECT, FROM_NAME, REPLY_TO = "subject.txt", "from_name.txt", "reply_to.txt"
TEXT, HTML = "weekly_email.txt", "weekly_email.html"
# What is rendered for each mail; footers are included by the text and the HTML.
PARTS = (SUBJECT, FROM_NAME, REPLY_TO, TEXT, HTML)
SHIPPED = (*PARTS, "footer.txt", "footer.html")
KINDS = (".txt", ".html")
# Rows of each table of the HTML: with more, mail programs cut it (Gmail at 102 KB).
MOST_ROWS = 150

_OF_LANGUAGE = re.compile(r"(?P<stem>[^.]+)\.(?P<language>[^.]+)\.(?P<kind>txt|html)")


@dataclass(frozen=True)
class Source:
    """The text of a template, and the path of its file, as errors name it."""

    text: str
    path: str


@dataclass(frozen=True)
class MailTemplates:
    """The files of a folder of templates: (name, text) each; none is the shipped look.

    `language` is that of who has none, and of files without one in their names; None: English, with
    numbers as records have them. `most_rows` bounds each table of the HTML.
    """

    files: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    language: str | None = None
    most_rows: int = MOST_ROWS
    _by_name: dict[str, Source] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name, text in self.files:
            self._by_name[canonical(name)] = Source(text, f"{self.folder}/{name}")

    @cached_property
    def languages(self) -> frozenset[str]:
        """The languages that files are in, as Babel has them: `de`, `pt_BR`, `zh_Hant_TW`."""
        return frozenset(found for name in self._by_name if (found := language_of(name)))

    def language_for(self, wanted: str | None) -> str | None:
        """Return the language of a client's mail: that of its record, if there are templates in it.

        Of another region, as `de-AT` where there is `de`, only numbers and dates differ.
        """
        if wanted is None:
            return self.language
        found = known_language(wanted)
        if found is None:
            return self.language
        is_written = not self.languages.isdisjoint(lookups(found))
        is_ours = base_of(found) == base_of(self.language or ENGLISH)
        return found if is_written or is_ours else self.language

    def source(self, name: str, language: str | None) -> Source | None:
        """Return what a name stands for in a language; None if there is no such template."""
        stem, _, kind = name.rpartition(".")
        wanted = [f"{stem}.{one}.{kind}" for one in (lookups(language) if language else ())]
        found = (self._by_name.get(one) for one in (*wanted, canonical(name)))
        return next(filter(None, found), shipped(name) if name in SHIPPED else None)

    def all_files(self) -> dict[str, str]:
        """Return all templates by name: the installation's own, and shipped ones in their place."""
        return {**{name: shipped(name).text for name in SHIPPED}, **dict(self.files)}


@lru_cache
def shipped(name: str) -> Source:
    """Return a template as Shardpost ships it."""
    # Not by its path: in an executor it is in a .zip.
    found = files("shardpost.weekly_email").joinpath("templates", name)
    return Source(found.read_text(encoding="utf-8"), f"shardpost/weekly_email/templates/{name}")


def language_of(name: str) -> str | None:
    """Return the language that the name of a file has, `de` of `footer.DE.html`; None if none.

    As Babel has it, and as it is written if Babel has none.
    """
    match = _OF_LANGUAGE.fullmatch(name)
    return (known_language(match["language"]) or match["language"]) if match else None


def canonical(name: str) -> str:
    """Return the name of a file with its language as Babel has it."""
    language = language_of(name)
    return ".".join((name.split(".")[0], language, name.split(".")[2])) if language else name


Values = dict[str, Any]


class HeldRow(NamedTuple):
    """One position, as it is shown; all text."""

    position: str
    ticker: str
    amount: str
    exchange: str


class StockRow(NamedTuple):
    """One stock, a ticker on an exchange: how many positions of it, and the sum of their shares."""

    ticker: str
    exchange: str
    positions: str
    amount: str


_ROW = HeldRow("1", "AAPL", "100", "NASDAQ")
_STOCK = StockRow("AAPL", "NASDAQ", "2", "200")
_SAMPLE: Values = {
    "client": "client1",
    "name": "Ann Example",
    "language": "en",
    "country": "US",
    "week": "2026-W47",
    "last_day": date(2026, 11, 22),
    "held_at": datetime(2026, 11, 23, tzinfo=UTC),
    "is_final": True,
    "count": 1,
    "stocks": 1,
    "positions": [_ROW],
    "more_positions": 0,
    "totals": [_STOCK],
    "more_totals": 0,
    "text_table": "Position  Ticker\n1         AAPL",
    "text_totals": "Ticker  Amount\nAAPL       100",
    "unsubscribe": "https://shardpost.example/unsubscribe?client=client1",
    "sender_name": "Shardpost",
    "sender_address": "weekly@shardpost.example",
}
VARIABLES = frozenset({*_SAMPLE, "subject"})
SAMPLES: tuple[Values, ...] = (
    _SAMPLE,
    {
        **_SAMPLE,
        "client": '"><script>&\u202e',
        "name": "",
        "sender_name": "",
        "is_final": False,
        "count": 1234,
        "stocks": 2,
        "positions": [_ROW, HeldRow("2", "", "", "")],
        "more_positions": 1232,
        "totals": [StockRow("", "", "1", "not added up"), _STOCK],
        "more_totals": 1000,
    },
)
