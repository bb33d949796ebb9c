"""Numbers and dates as a language writes them, by Babel; without one, as records have them.

A language is a tag such as `de`, `pt_BR` or `zh_Hant_TW`, of which Babel has the data.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, localcontext
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
