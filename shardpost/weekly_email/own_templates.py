"""The templates of SHARDPOST_MAIL_TEMPLATES: read and tried before a run, and kept.

They are shipped with the work, so that all mails of a run use the same templates even if the folder
changes. The table `mail_looks` keeps them (through deltalake), so that mails can be shown as they
were sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from shardpost.delta import table_log
from shardpost.delta.query import select
from shardpost.delta.storage import Tables
from shardpost.errors import ShardpostError, UsageError
from shardpost.settings.forms import read_text
from shardpost.weekly_email.model import mail_rendering
from shardpost.weekly_email.model.email_context import EmailContext
from shardpost.weekly_email.model.mail_templates import (
    KINDS,
    SHIPPED,
    MailTemplates,
    canonical,
    known_language,
    language_of,
    shipped,
)
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import MAIL_LOOKS, MailLook
from shardpost.wording import meant

MOST_BYTES = 1 << 20
NAME = "SHARDPOST_MAIL_TEMPLATES"


@dataclass(frozen=True)
class TemplateSettings:
    """The settings of the mail's appearance."""

    mail_templates: Path | None
    mail_language: str | None


def templates_of(settings: TemplateSettings) -> MailTemplates:
    """Return the templates of the settings, tried with samples, or the shipped ones.

    Raises UsageError for a missing folder, and for a template that fails, with file and line.
    """
    language, folder = settings.mail_language, settings.mail_templates
    if language and (language := known_language(language)) is None:
        raise UsageError(
            f"setting SHARDPOST_MAIL_LANGUAGE={settings.mail_language!r}: expected a language"
            " that Babel knows, such as de or pt-BR"
        )
    files = tuple(_read(folder)) if folder else ()
    templates = MailTemplates(files, str(folder or ""), language)
    mail_rendering.check(templates)
    return templates


def write_shipped(folder: Path) -> list[Path]:
    """Write the shipped templates into a folder for editing; return their paths.

    Raises UsageError, and writes nothing, if one of them exists.
    """
    paths = {folder / name: shipped(name).text for name in SHIPPED}
    for path in paths:
        if path.exists():
            raise UsageError(f"{path}: this template exists already and is not overwritten")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ShardpostError(f"{folder}: cannot be written: {error.strerror}") from None
    return list(paths)


def _read(folder: Path) -> Iterator[tuple[str, str]]:
    if not folder.is_dir():
        raise UsageError(
            f"setting {NAME}={str(folder)!r}: expected a folder, found nothing; `shardpost email"
            f" templates init {folder}` creates it"
        )
    known: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in KINDS and path.is_file():
            _require_known_name(path)
            if (other := known.setdefault(canonical(path.name), path)) is not path:
                raise UsageError(
                    f"{path}: expected one file per language, found the language of {other.name} "
                    "twice: remove one of them"
                )
            if (size := path.stat().st_size) > MOST_BYTES:
                raise UsageError(f"{path}: expected at most {MOST_BYTES} bytes, found {size}")
            yield path.name, read_text(path)


def _require_known_name(path: Path) -> None:
    """Refuse a name that is almost one of ours, and an unknown language."""
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


def keep_look(tables: Tables, context: EmailContext, shards: Sequence[int], now: datetime) -> None:
    """Record in `mail_looks` the sender and templates of a run's shards from now on.

    Call it while holding the locks of the shards, before the first mail. A row is added for the
    shards whose last mails had another sender or other templates.
    """
    sender, templates = context.sender, context.templates
    look = MailLook(
        *(str(context.week), tuple(shards), now),
        *(sender.name, sender.address, sender.unsubscribe_url, sender.list_id),
        *(templates.all_files(), templates.language, templates.most_rows),
    )
    last = {shard: kept for kept in _looks(tables, context.week) for shard in kept.shards}
    changed = [one for one in shards if one not in last or not last[one].is_like(look)]
    if changed:
        look = replace(look, shards=tuple(changed))
        table_log.append(tables, MAIL_LOOKS, lambda: look)


def looks_of_shard(tables: Tables, week: IsoWeek, shard: int) -> list[MailLook]:
    """Return the senders and templates of a shard's mails, newest first."""
    return [look for look in reversed(_looks(tables, week)) if shard in look.shards]


def _looks(tables: Tables, week: IsoWeek) -> list[MailLook]:
    """Return the rows of a week, oldest first."""
    return select(tables, MAIL_LOOKS, MailLook, f"WHERE week = '{week}' ORDER BY at")
