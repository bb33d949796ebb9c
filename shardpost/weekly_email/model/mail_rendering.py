"""The mail's parts rendered for one client, by the templates of a language; and their check.

Jinja's sandbox lets templates read what they are given, and nothing else. They are strict: what is
not there is an error, and never an empty place in a mail. An error of one says file and line, and
stops the run: it is no client's fault, so nothing is final by it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from traceback import walk_tb

from jinja2 import (
    Environment,
    FunctionLoader,
    StrictUndefined,
    Template,
    TemplateNotFound,
    TemplateSyntaxError,
    meta,
    nodes,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shardpost.errors import UsageError, first_line, single_line
from shardpost.weekly_email.model.localized import Filters
from shardpost.weekly_email.model.mail_headers import mailboxes
from shardpost.weekly_email.model.mail_rows import SAME_FOR_ALL, SAMPLES, VARIABLES, Values
from shardpost.weekly_email.model.mail_templates import (
    FROM_NAME,
    HTML,
    PARTS,
    REPLY_TO,
    SUBJECT,
    TEXT,
    MailTemplates,
    Source,
)
from shardpost.weekly_email.model.style_inlining import inlined

LONGEST_LINE = 500
# One that includes itself would never end.
MOST_INCLUDES = 50
_INCLUDE = re.compile(r"""\{%[-+]?\s*include\s+(['"])(?P<name>[^'"]+)\1\s*[-+]?%\}""")
_REFUSED = {
    re.compile(r"(?i)<img\b(?![^>]*\balt\s*=)[^>]*>"): 'an alt="…" of each <img>',
    re.compile(r"(?i)<link\b"): "styles in <style>: mail programs load none",
    re.compile(r"(?i)<script\b"): "no <script>: mail programs run none",
    re.compile(r"\{%[-+]?\s*extends\b"): "a whole document: its styles are put onto its elements",
}


class TemplateError(UsageError):
    """A template is wrong: its file, the line if it is known, and why."""


@dataclass(frozen=True)
class Rendered:
    """The parts of one mail; all but the bodies are single lines."""

    subject: str
    from_name: str
    reply_to: str
    text: str
    html: str


class Face:
    """The templates of one language, compiled; TemplateError for those that cannot be."""

    def __init__(self, templates: MailTemplates, language: str | None) -> None:
        self._templates, self._language = templates, language
        self._environment = _environment(self._loaded, language)
        # As they are written, which errors tell the lines of; and as they are rendered.
        self._written: dict[str, Callable[..., str]] = {}
        self._rendered: dict[str, Callable[..., str]] = {}
        for name in PARTS:
            with self._located(name):
                self._written[name] = self._environment.get_template(name).render
                self._rendered[name] = self._compiled(name)
        self._lines: dict[tuple[object, ...], str] = {}
        self._same_for_all = {
            name: sorted(used)
            for name in (FROM_NAME, REPLY_TO)
            if (used := self._variables(name)) <= SAME_FOR_ALL
        }

    def render(self, values: Values) -> Rendered:
        """Return the parts of one mail; TemplateError for what its values do not go with."""
        given = {**self._environment.globals, **values}
        given["subject"] = subject = self._line(SUBJECT, given)
        return Rendered(
            subject,
            self._known_line(FROM_NAME, given),
            self._known_line(REPLY_TO, given),
            self._render(TEXT, given),
            self._render(HTML, given),
        )

    def _compiled(self, name: str) -> Callable[..., str]:
        """Return what renders a template, with all that it includes; HTML has its styles then."""
        source = self._included(name)
        if name == HTML:
            source = inlined(source, self._environment, self._source(name).path)
        code = self._environment.compile(source, name, name)
        template = Template.from_code(self._environment, code, {})

        def render(values: Values) -> str:
            # As Template.render, without its copies of the values, which take half the time.
            context = template.new_context(values, shared=True)
            return "".join(template.root_render_func(context))

        return render

    def _variables(self, name: str) -> set[str]:
        with self._located(name):
            parsed = self._environment.parse(self._included(name), name)
        return meta.find_undeclared_variables(parsed)

    def check(self) -> None:
        """Try the templates with samples; TemplateError for what would go wrong with a mail."""
        for name in self._used():
            self._check_source(name)
        with self._located(REPLY_TO):
            mailboxes(self.render(SAMPLES[0]).reply_to)
        for sample in SAMPLES:
            for name in PARTS:
                with self._located(name):
                    self._written[name]({"subject": "", **sample})
            found = self.render(sample)
            for name, text in ((SUBJECT, found.subject), (TEXT, found.text), (HTML, found.html)):
                if not text.strip():
                    path = self._source(name).path
                    raise TemplateError(f"{path}: expected some text, found none")

    def _check_source(self, name: str) -> None:
        source = self._source(name)
        with self._located(name):
            parsed = self._environment.parse(source.text, name, source.path)
        known = VARIABLES - {"subject"} if name == SUBJECT else VARIABLES
        known |= self._environment.globals.keys()
        if unknown := meta.find_undeclared_variables(parsed) - known:
            found = (one for one in parsed.find_all(nodes.Name) if one.name in unknown)
            first = min(found, key=lambda one: one.lineno)
            raise TemplateError(
                f"{source.path}, line {first.lineno}: expected one of"
                f" {', '.join(sorted(known & VARIABLES))}; found {first.name}"
            )
        if name.endswith(".html"):
            _require_mailable(source)

    def _used(self) -> Iterator[str]:
        """Yield the names of the templates that mails are made of, also those included."""
        waiting, seen = list(PARTS), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            yield name
            with self._located(name):
                parsed = self._environment.parse(self._source(name).text)
            waiting += [one for one in meta.find_referenced_templates(parsed) if one]

    def _line(self, name: str, values: Values) -> str:
        return single_line(self._render(name, values), LONGEST_LINE)

    def _known_line(self, name: str, values: Values) -> str:
        """Return a line that is most often the same for all clients."""
        if name not in self._same_for_all:
            return self._line(name, values)
        key = (name, *(values[one] for one in self._same_for_all[name]))
        if key not in self._lines:
            self._lines[key] = self._line(name, values)
        return self._lines[key]

    def _render(self, name: str, values: Values) -> str:
        try:
            return self._rendered[name](values)
        except Exception:
            with self._located(name):
                self._written[name](values)
                raise

    @contextmanager
    def _located(self, name: str) -> Iterator[None]:
        """Turn what Jinja raises into a TemplateError that says file and line."""
        try:
            yield
        except UsageError:
            raise
        except Exception as error:
            where = self._source(name).path
            if isinstance(error, TemplateSyntaxError):
                where = f"{error.filename or where}, line {error.lineno}"
            else:
                frames = [(f.f_code.co_filename, line) for f, line in walk_tb(error.__traceback__)]
                known = [(path, line) for path, line in frames if path.endswith((".txt", ".html"))]
                where = "{}, line {}".format(*known[-1]) if known else where
            raise TemplateError(f"{where}: {_said(error)}") from None

    def _loaded(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        found = self._templates.source(name, self._language)
        return (found.text, found.path, lambda: True) if found else None

    def _source(self, name: str) -> Source:
        found = self._templates.source(name, self._language)
        if found is None:
            raise TemplateError(f"{self._templates.folder}/{name}: there is no such template")
        return found

    def _included(self, name: str) -> str:
        """Return a template with those in it that it includes, whose elements have styles, too."""
        text, last = self._source(name).text, name
        for _ in range(MOST_INCLUDES):
            match = _INCLUDE.search(text)
            if match is None:
                return text
            last = match["name"]
            before, after = text[: match.start()], text[match.end() :]
            before = before.rstrip() if match[0].startswith("{%-") else before
            after = after.lstrip() if match[0].endswith("-%}") else after
            text = before + self._source(match["name"]).text + after
        raise TemplateError(
            f"{self._source(last).path}: expected at most {MOST_INCLUDES} includes in {name}, found"
            " more: does it include itself?"
        )


@lru_cache(maxsize=256)
def face_of(templates: MailTemplates, language: str | None) -> Face:
    """Return the templates of a language, compiled once in each process."""
    return Face(templates, language)


def check(templates: MailTemplates) -> None:
    """Try all templates, of each language; TemplateError says the first that is wrong."""
    for language in (templates.language, *sorted(templates.languages)):
        face_of(templates, language).check()


def _said(error: Exception) -> str:
    if isinstance(error, TemplateNotFound):
        return f"there is no template {error.name}"
    return single_line(first_line(error), LONGEST_LINE)


def _require_mailable(source: Source) -> None:
    """Refuse what no mail program shows."""
    for pattern, expected in _REFUSED.items():
        if match := pattern.search(source.text):
            line = source.text[: match.start()].count("\n") + 1
            raise TemplateError(
                f"{source.path}, line {line}: expected {expected}, found {match[0]!r}"
            )


def _environment(load: Callable[[str], object], language: str | None) -> Environment:
    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load),  # type: ignore[arg-type]
        autoescape=_is_escaped,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    # The same inputs make the same mail: nothing by chance.
    del environment.filters["random"], environment.globals["lipsum"]
    environment.filters |= Filters(language).as_dict()
    return environment


def _is_escaped(name: str | None) -> bool:
    return name is None or name.endswith(".html")  # without a name: HTML with its styles
