"""The templates that SHARDPOST_MAIL_TEMPLATES names: read once for a run, and tried before it.

They are sent along to where mails are written: all mails of a run are by the same ones, whatever
becomes of the folder meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shardpost.errors import ShardpostError, UsageError
from shardpost.text_files import read_text
from shardpost.weekly_email.model import mail_rendering
from shardpost.weekly_email.model.localized import known_language
from shardpost.weekly_email.model.mail_templates import (
    KINDS,
    SHIPPED,
    SUBJECT,
    MailTemplates,
    canonical,
    language_of,
    shipped,
)
from shardpost.wording import meant

MOST_BYTES = 1 << 20
NAME = "SHARDPOST_MAIL_TEMPLATES"


@dataclass(frozen=True)
class TemplateSettings:
    """What the settings say of the look of the mail."""

    mail_templates: Path | None
    mail_language: str | None


def templates_of(settings: TemplateSettings) -> MailTemplates:
    """Return the templates that the settings name, tried with samples; shipped ones otherwise.

    UsageError for a folder that is none, and for a template that no mail can be written with: its
    file, and the line.
    """
    templates = read(settings)
    mail_rendering.check(templates)
    return templates


def read(settings: TemplateSettings) -> MailTemplates:
    """Return the same without trying them."""
    language = settings.mail_language and _known(settings.mail_language)
    folder = settings.mail_templates
    files = tuple(_read(folder)) if folder else ()
    return MailTemplates(files, str(folder or ""), language)


def with_subject(templates: MailTemplates, subject: str) -> MailTemplates:
    """Return the templates with another subject, for all languages, which nobody has tried."""
    others = [(name, text) for name, text in templates.files if not _is_subject(name)]
    return replace(templates, files=(*others, (SUBJECT, subject)), folder="tried")


def _is_subject(name: str) -> bool:
    return name.partition(".")[0] == SUBJECT.partition(".")[0] and name.endswith(".txt")


def write_shipped(folder: Path) -> list[Path]:
    """Write the shipped templates into a folder, to be changed; return their paths.

    UsageError if one of them is there already: nothing is written then.
    """
    paths = {folder / name: shipped(name).text for name in SHIPPED}
    for path in paths:
        if path.exists():
            raise UsageError(f"{path}: expected no template yet, found one: it is not overwritten")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ShardpostError(f"{folder}: cannot be written: {error.strerror}") from None
    return list(paths)


def _known(language: str) -> str:
    found = known_language(language)
    if found is None:
        raise UsageError(
            f"setting SHARDPOST_MAIL_LANGUAGE={language!r}: expected a language that Babel has the"
            " numbers and dates of, such as de or pt-BR"
        )
    return found


def _read(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the templates of a folder."""
    if not folder.is_dir():
        raise UsageError(
            f"setting {NAME}={str(folder)!r}: expected a folder, found none; `shardpost email"
            f" templates init {folder}` makes one"
        )
    known: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in KINDS and path.is_file():
            _require_known_name(path)
            if (other := known.setdefault(canonical(path.name), path)) is not path:
                raise UsageError(
                    f"{path}: expected a language of its own, found that of {other.name}:"
                    " remove one of them"
                )
            if (size := path.stat().st_size) > MOST_BYTES:
                raise UsageError(f"{path}: expected at most {MOST_BYTES} bytes, found {size}")
            yield path.name, read_text(path)


def _require_known_name(path: Path) -> None:
    """Refuse a name that is nearly one of ours, and a language that there is not."""
    language = language_of(path.name)
    if language is not None and known_language(language) is None:
        raise UsageError(
            f"{path}: expected a language such as de or pt-BR between the dots, found {language}"
        )
    stem = path.name.partition(".")[0]
    name = path.name if language is None else f"{stem}{path.suffix}"
    said = meant(f"{stem}{path.suffix}".lower(), SHIPPED, cutoff=0.9)
    if name not in SHIPPED and said:
        raise UsageError(f"{path}: no such template{said}")
