"""Styles of a template of HTML put onto its elements, once for all mails: by css-inline.

Mail programs take no style sheets, or not all of one. Parsing HTML for each mail would take longer
than writing it, so the template itself is parsed, with all that is Jinja's hidden: as comments, or
as words where no comment can be. What depends on the data is not known then: a class that is
chosen by an expression has no style of its own. Rules in `@media` stay in a style sheet.
"""

import re
from collections.abc import Iterator, Sequence

import css_inline
from jinja2 import Environment

from shardpost.errors import UsageError

# Elements of which the content is text, without comments.
_RAW = re.compile(r"(?i)(style|title|textarea)\b")
_STYLE = "</style"


def inlined(source: str, environment: Environment, path: str) -> str:
    """Return a whole document of HTML, a template, with the styles of `<style>` on its elements.

    UsageError for Jinja's in a style sheet, and for elements that begin in another branch than
    they end in.
    """
    prefix = _unused_word(source)
    hidden: list[str] = []
    codes: list[str] = []
    place = _Place()
    for text, is_code in _cut(source, environment):
        if not is_code:
            place.move(text)
            hidden.append(text)
            continue
        if place.end == _STYLE:
            raise _error(path, source, [*codes, text], "a style sheet without expressions")
        mark = f"{prefix}{len(codes)}x"
        hidden.append(mark if place.end else f"<!--{mark}-->")
        codes.append(text)
    inliner = css_inline.CSSInliner(
        keep_at_rules=True, minify_css=True, load_remote_stylesheets=False
    )
    marks = re.compile(rf'<!--{prefix}(\d+)x-->|{prefix}(\d+)x(?:="")?')
    styled = inliner.inline("".join(hidden))
    found = [int(match[1] or match[2]) for match in marks.finditer(styled)]
    for number, code in enumerate(codes):
        if found[number : number + 1] != [number]:
            expected = "elements that begin and end in the same branch"
            raise _error(path, source, codes[: number + 1], f"{expected}, around {code!r}")
    return marks.sub(lambda match: codes[int(match[1] or match[2])], styled)


def _cut(source: str, environment: Environment) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a template: text, and what is Jinja's (True)."""
    code = ""
    for _, kind, text in environment.lex(source):
        if kind == "data" and not code:
            yield text, False
            continue
        code += text
        if kind.endswith("_end") or kind == "raw_begin":
            yield code, True
            code = ""


def _unused_word(source: str) -> str:
    word = "jinja"
    while word in source:
        word += "j"
    return word


def _error(path: str, source: str, codes: Sequence[str], expected: str) -> UsageError:
    at = 0
    for code in codes:
        at = max(source.find(code, at), at)
    line = source[:at].count("\n") + 1
    return UsageError(f"{path}, line {line}: expected {expected}")


class _Place:
    """Where in HTML one is: `end` is what ends the tag, comment or raw text; "" in other text."""

    def __init__(self) -> None:
        self.end = ""
        self._after = ""

    def move(self, text: str) -> None:
        """Go on behind a text."""
        while text:
            if not self.end:
                _, _, text = text.partition("<")
                self._enter(text)
                continue
            at = text.lower().find(self.end)
            if at < 0:
                return
            text = text[at + len(self.end) :]
            self.end, self._after = self._after, ""

    def _enter(self, rest: str) -> None:
        if rest.startswith("!--"):
            self.end = "-->"
        elif rest[:1].isalpha() or rest[:1] in {"/", "!"}:
            raw = _RAW.match(rest)
            self.end, self._after = ">", f"</{raw[1].lower()}" if raw else ""
