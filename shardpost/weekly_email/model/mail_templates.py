"""The templates of the mail as values, and what they are given: numbers and dates by language.

A language is a tag such as `de`, `pt_BR` or `zh_Hant_TW`, of which Babel has the data; without one,
numbers and dates are as records have them.

A part of the mail is a file. `weekly_email.de.html` is `weekly_email.html` in German; A part
missing in a language falls back to the file without a language, and then to the shipped file.
Templates are tried before a run with samples that cover every branch of the shipped ones.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache, partial
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from babel import Locale

# The language of Babel's filters if the setting names no language.
ENGLISH = "en"
# The filters that are functions of Babel, with their modules.
OF_BABEL = {
    **dict.fromkeys(("format_decimal", "format_percent"), "numbers"),
    **dict.fromkeys(("format_date", "format_time", "format_datetime"), "dates"),
}
_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8}){0,3}")
MOST_DIGITS = 60
_NUMBER = re.compile(rf"(-?)([0-9]{{1,{MOST_DIGITS}}})(?:\.([0-9]{{1,{MOST_DIGITS}}}))?", re.ASCII)


@lru_cache(maxsize=4096)
def known_language(text: str) -> str | None:
    """Return Babel's tag for a language, without the region if necessary; None if unknown.

    Equivalent tags give the same result: zh_Hant_TW for zh-TW, he for iw.
    """
    if not _TAG.fullmatch(text):
        return None
    from babel import Locale, UnknownLocaleError

    for tag in (text, base_of(text)):
        try:
            found = Locale.parse(tag.replace("-", "_"))
            # For a renamed language tag, Babel adds a region that nobody asked for.
            return str(Locale(found.language, script=found.script) if tag.isalpha() else found)
        except (UnknownLocaleError, ValueError):
            continue
    return None


def base_of(language: str) -> str:
    """Return a language without its region: `de` for `de_AT`."""
    return re.split("[-_]", language, maxsplit=1)[0].lower()


@lru_cache
def lookups(language: str) -> tuple[str, ...]:
    """Return a tag and its fallbacks: zh_Hant_TW, zh_Hant, zh (RFC 4647, 3.4)."""
    parts = language.split("_")
    return tuple("_".join(parts[:count]) for count in range(len(parts), 0, -1))


@lru_cache
def _locale(language: str) -> "Locale":
    from babel import Locale

    return Locale.parse(language)


@lru_cache(maxsize=65_536)
def number_text(number: str, language: str) -> str:
    """Return a number in a language with all its digits; other text is returned unchanged."""
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


def filters_of(language: str | None) -> dict[str, Callable[..., str]]:
    """Return the filters of templates in a language, by their names.

    `number`, `day` and `instant` are those of the shipped templates: without a language, as in the
    records and ISO 8601. The others are Babel's, under its names: in UTC, with a pattern if given.
    """

    def of_babel(name: str, value: object, format: str | None = None) -> str:  # noqa: A002 - Babel's
        function = getattr(import_module(f"babel.{OF_BABEL[name]}"), name)
        given: dict[str, Any] = {} if format is None else {"format": format}
        if name == "format_decimal":
            given["decimal_quantization"] = False
        return str(function(value, locale=_locale(language or ENGLISH), **given))

    def number(value: object) -> str:
        return str(value) if language is None else number_text(str(value), language)

    def day(value: date) -> str:
        return _iso_day(value) if language is None else of_babel("format_date", value, "full")

    def instant(value: datetime) -> str:
        if language is None:
            return f"{_iso_day(value.date())} {value:%H:%M}"
        return f"{day(value)} {of_babel('format_time', value, 'short')}"

    own = {"number": number, "day": day, "instant": instant}
    return own | {name: partial(of_babel, name) for name in OF_BABEL}


SUBJECT, FROM_NAME, REPLY_TO = "subject.txt", "from_name.txt", "reply_to.txt"
TEXT, HTML = "weekly_email.txt", "weekly_email.html"
# What is rendered for each mail; footers are included by the text and the HTML.
PARTS = (SUBJECT, FROM_NAME, REPLY_TO, TEXT, HTML)
SHIPPED = (*PARTS, "footer.txt", "footer.html")
KINDS = (".txt", ".html")
# Rows of each HTML table: mail programs cut longer mails (Gmail at 102 KB).
MOST_ROWS = 150

_OF_LANGUAGE = re.compile(r"(?P<stem>[^.]+)\.(?P<language>[^.]+)\.(?P<kind>txt|html)")


@dataclass(frozen=True)
class Source:
    """The text of a template, and the path of its file, as errors name it."""

    text: str
    path: str


@dataclass(frozen=True)
class MailTemplates:
    """The files of a template folder as (name, text); empty: the shipped templates.

    `language` is for clients and file names without a language; None: English, with numbers as in
    the records. `most_rows` limits each HTML table.
    """

    files: tuple[tuple[str, str], ...] = ()
    folder: str = ""
    language: str | None = None
    most_rows: int = MOST_ROWS

    @cached_property
    def _by_name(self) -> dict[str, Source]:
        return {canonical(name): Source(text, f"{self.folder}/{name}") for name, text in self.files}

    @cached_property
    def languages(self) -> frozenset[str]:
        """The languages of the files, as Babel tags: `de`, `pt_BR`, `zh_Hant_TW`."""
        return frozenset(found for name in self._by_name if (found := language_of(name)))

    def language_for(self, wanted: str | None) -> str | None:
        """Return the language of a client's mail: its record's, if there are templates for it.

        For another region (`de-AT` with templates in `de`) only numbers and dates differ.
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
        """Return the template of a name in a language, or None."""
        stem, _, kind = name.rpartition(".")
        wanted = [f"{stem}.{one}.{kind}" for one in (lookups(language) if language else ())]
        found = (self._by_name.get(one) for one in (*wanted, canonical(name)))
        return next(filter(None, found), shipped(name) if name in SHIPPED else None)

    def all_files(self) -> dict[str, str]:
        """Return all templates by name: the installation's own, else the shipped ones."""
        return {**{name: shipped(name).text for name in SHIPPED}, **dict(self.files)}


@lru_cache
def shipped(name: str) -> Source:
    """Return a template as Shardpost ships it."""
    # Not by path: on an executor it is inside a .zip.
    found = files("shardpost.weekly_email").joinpath("templates", name)
    return Source(found.read_text(encoding="utf-8"), f"shardpost/weekly_email/templates/{name}")


def language_of(name: str) -> str | None:
    """Return the language in a file's name, in Babel's form if Babel knows it; None without one."""
    match = _OF_LANGUAGE.fullmatch(name)
    return (known_language(match["language"]) or match["language"]) if match else None


def canonical(name: str) -> str:
    """Return a file's name with its language as a Babel tag."""
    language = language_of(name)
    return ".".join((name.split(".")[0], language, name.split(".")[2])) if language else name


Values = dict[str, Any]


class HeldRow(NamedTuple):
    """One position as displayed; all text."""

    position: str
    ticker: str
    amount: str
    exchange: str


class StockRow(NamedTuple):
    """One stock (a ticker on an exchange): its number of positions and sum of shares."""

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
