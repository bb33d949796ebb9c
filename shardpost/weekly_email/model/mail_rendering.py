"""The parts of one client's mail, rendered from templates, and the check of templates.

Jinja's sandbox lets templates read their variables and nothing else. An undefined variable is an
error, never a blank in a mail. A template error names file and line and stops the run: it is no
client's fault, so no client's state becomes final.

The rules of a part apply to all that it includes or imports: text is escaped where it enters HTML,
styles are inlined into the finished HTML, and no state is kept between mails.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from traceback import walk_tb
from typing import Any

import css_inline
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
from jinja2.environment import TemplateModule
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shardpost.errors import UsageError, first_line, single_line
from shardpost.weekly_email.model import mail_templates
from shardpost.weekly_email.model.email_context import mailboxes

LONGEST_LINE = 500
# What mail programs do not show, and what to use instead.
_REFUSED = {
    re.compile(r"(?i)<img\b(?![^>]*\balt\s*=)[^>]*>"): 'an alt="…" of each <img>',
    re.compile(r"(?i)<link\b"): "styles in <style>: mail programs load none",
    re.compile(r"(?i)<script\b"): "no <script>: mail programs run none",
}

# Replaces "&" while styles are inlined; no text contains it (Unicode, 23.7).
_AMPERSAND = "\ufdd0"


class TemplateError(UsageError):
    """A template is wrong; names the file, the line if known, and the fault."""


@dataclass(frozen=True)
class Rendered:
    """The parts of one mail; all but the bodies are single lines."""

    subject: str
    from_name: str
    reply_to: str
    text: str
    html: str


class Face:
    """The compiled templates of one language; raises TemplateError if one does not compile."""

    def __init__(self, templates: mail_templates.MailTemplates, language: str | None) -> None:
        self._templates, self._language = templates, language
        self._text = _environment(self._loaded, language, is_html=False)
        self._html = _environment(self._loaded, language, is_html=True)
        self._parts: dict[str, Template] = {}
        for name in mail_templates.PARTS:
            with self._located(name):
                self._parts[name] = self._environment(name).get_template(name)
        self._inliner = css_inline.CSSInliner(
            keep_at_rules=True, minify_css=True, load_remote_stylesheets=False
        )

    def render(self, values: mail_templates.Values) -> Rendered:
        """Return the parts of one mail; raises TemplateError if a template fails on its values."""
        given = {**self._text.globals, **values}
        given["subject"] = subject = self._line(mail_templates.SUBJECT, given)
        return Rendered(
            subject,
            self._line(mail_templates.FROM_NAME, given),
            self._line(mail_templates.REPLY_TO, given),
            self._render(mail_templates.TEXT, given),
            self._styled(self._render(mail_templates.HTML, given)),
        )

    def check(self) -> None:
        """Try the templates with samples; raises TemplateError for what would fail in a mail."""
        with self._located(mail_templates.REPLY_TO):
            mailboxes(self.render(mail_templates.SAMPLES[0]).reply_to)
        for sample in mail_templates.SAMPLES:
            found = self.render(sample)
            for name, text in (
                (mail_templates.SUBJECT, found.subject),
                (mail_templates.TEXT, found.text),
                (mail_templates.HTML, found.html),
            ):
                if not text.strip():
                    path = self._source(name).path
                    raise TemplateError(f"{path}: expected some text, found none")

    def check_sources(self) -> None:
        """Check all files (language None): any of them can be included into HTML."""
        for name in self._templates.all_files():
            source = self._source(name)
            for pattern, expected in _REFUSED.items():
                if match := pattern.search(source.text):
                    line = source.text[: match.start()].count("\n") + 1
                    raise TemplateError(
                        f"{source.path}, line {line}: expected {expected}, found {match[0]!r}"
                    )
            with self._located(name):
                self._check_source(name, source)
                self._environment(name).get_template(name)

    def _check_source(self, name: str, source: mail_templates.Source) -> None:
        parsed = self._text.parse(source.text, name, source.path)
        known = (
            mail_templates.VARIABLES - {"subject"}
            if name.partition(".")[0] == "subject"
            else mail_templates.VARIABLES
        )
        known |= self._text.globals.keys()
        if unknown := meta.find_undeclared_variables(parsed) - known:
            found = (one for one in parsed.find_all(nodes.Name) if one.name in unknown)
            first = min(found, key=lambda one: one.lineno)
            raise TemplateError(
                f"{source.path}, line {first.lineno}: expected one of"
                f" {', '.join(sorted(known & mail_templates.VARIABLES))}; found {first.name}"
            )
        language = mail_templates.language_of(name) or self._templates.language
        node: Any
        for node in parsed.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            other: Any = getattr(node.template, "value", None)
            is_needed = isinstance(other, str) and not getattr(node, "ignore_missing", False)
            if is_needed and self._templates.source(other, language) is None:
                raise TemplateError(f"{source.path}, line {node.lineno}: no template {other}")

    def _line(self, name: str, values: mail_templates.Values) -> str:
        return single_line(self._render(name, values), LONGEST_LINE)

    def _render(self, name: str, values: mail_templates.Values) -> str:
        template = self._parts[name]
        # Like Template.render, but without copying the values, which takes half the time.
        context = template.new_context(values, shared=True)
        try:
            return "".join(template.root_render_func(context))
        except Exception:
            with self._located(name):
                template.environment.handle_exception()
            raise

    def _styled(self, html: str) -> str:
        """Return HTML with the styles of `<style>` inlined.

        Entities are kept as they are, so that a client's values are never parsed as HTML.
        """
        text = html.encode(errors="replace").decode().replace(_AMPERSAND, "\ufffd")
        with self._located(mail_templates.HTML):
            return self._inliner.inline(text.replace("&", _AMPERSAND)).replace(_AMPERSAND, "&")

    @contextmanager
    def _located(self, name: str) -> Iterator[None]:
        """Turn Jinja's exceptions into a TemplateError with file and line."""
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

    def _environment(self, name: str) -> Environment:
        return self._html if name.endswith(".html") else self._text

    def _loaded(self, name: str) -> tuple[str, str, Callable[[], bool]] | None:
        found = self._templates.source(name, self._language)
        return (found.text, found.path, lambda: True) if found else None

    def _source(self, name: str) -> mail_templates.Source:
        found = self._templates.source(name, self._language)
        if found is None:
            raise TemplateError(f"{self._templates.folder}/{name}: no such template")
        return found


@lru_cache(maxsize=256)
def face_of(templates: mail_templates.MailTemplates, language: str | None) -> Face:
    """Return the templates of a language, compiled once in each process."""
    return Face(templates, language)


def check(templates: mail_templates.MailTemplates) -> None:
    """Try all templates in each language; raises TemplateError for the first wrong one."""
    face_of(templates, None).check_sources()
    for language in (templates.language, *sorted(templates.languages)):
        face_of(templates, language).check()


def _said(error: Exception) -> str:
    if isinstance(error, TemplateNotFound):
        return f"no template {error.name}"
    if isinstance(error, RecursionError):
        return "expected no recursion, found a template that includes, imports or calls itself"
    if isinstance(error, MemoryError):
        return "expected text that fits into memory, found more"
    return single_line(first_line(error), LONGEST_LINE)


class _Fresh(Template):
    """A template that is rendered again at every import: Jinja would cache the first result."""

    def _get_default_module(self, ctx: Context | None = None) -> TemplateModule:
        return self.make_module()


def _environment(
    load: Callable[[str], object], language: str | None, *, is_html: bool
) -> Environment:
    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load),  # type: ignore[arg-type]
        autoescape=is_html,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.template_class = _Fresh
    # The same inputs make the same mail: no randomness.
    del environment.filters["random"], environment.globals["lipsum"]
    environment.filters |= mail_templates.filters_of(language)
    return environment
