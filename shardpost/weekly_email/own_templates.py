"""The templates that SHARDPOST_MAIL_TEMPLATES names: read for a run, tried before it, and kept.

They are sent along to where mails are written: all mails of a run are by the same ones, whatever
becomes of the folder meanwhile. The table `mail_looks` keeps them, through deltalake, so that the
mails of a week can be shown as they were sent.

A template can take any time and any memory, and Airflow's API server has other work: so whatever of
the page renders templates does it in a child process, which is this file, with bounds of time,
memory and output.
"""

import json
import pickle
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from threading import BoundedSemaphore

from shardpost.delta import table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import select
from shardpost.errors import ShardpostError, UsageError, one_line
from shardpost.settings.forms import read_text
from shardpost.weekly_email.model import mail_rendering
from shardpost.weekly_email.model.email_context import EmailContext
from shardpost.weekly_email.model.mail_rendering import Rendered, TemplateError
from shardpost.weekly_email.model.mail_templates import (
    KINDS,
    SHIPPED,
    SUBJECT,
    MailTemplates,
    Values,
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
    language, folder = settings.mail_language, settings.mail_templates
    if language and (language := known_language(language)) is None:
        raise UsageError(
            f"setting SHARDPOST_MAIL_LANGUAGE={settings.mail_language!r}: expected a language that"
            " Babel has the numbers and dates of, such as de or pt-BR"
        )
    files = tuple(_read(folder)) if folder else ()
    return MailTemplates(files, str(folder or ""), language)


def with_subject(templates: MailTemplates, subject: str) -> MailTemplates:
    """Return the templates with another subject, for all languages, which nobody has tried."""
    stem = SUBJECT.partition(".")[0]
    others = [
        (name, text)
        for name, text in templates.files
        if name.partition(".")[0] != stem or not name.endswith(".txt")
    ]
    return replace(templates, files=(*others, (SUBJECT, subject)), folder="tried")


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


def _read(folder: Path) -> Iterator[tuple[str, str]]:
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


def keep_look(tables: Tables, context: EmailContext, shards: Sequence[int], now: datetime) -> None:
    """Keep by what a run writes the mails of its shards from now on, in the table `mail_looks`.

    To be called behind the locks of the shards, before the first mail. A row is added for those of
    them that were not mailed by the same sender and templates last.
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
    """Return by what the mails of a shard were written, the newest first."""
    return [look for look in reversed(_looks(tables, week)) if shard in look.shards]


def _looks(tables: Tables, week: IsoWeek) -> list[MailLook]:
    """Return the rows of a week, oldest first."""
    return select(tables, MAIL_LOOKS, MailLook, f"WHERE week = '{week}' ORDER BY at")


# Of processor time, and of the clock's where the processor has other work, too.
CPU_SECONDS = 5
MOST_SECONDS = 60.0
MOST_MEMORY = 256 << 20
# Of the text and of the HTML; a mail of 10,000 positions has 1 MB.
MOST_CHARACTERS = 4 << 20
AT_ONCE = BoundedSemaphore(2)
WAIT_SECONDS = 10.0


def bounded_rendered(
    templates: MailTemplates, language: str | None, values: Values, *, is_tried: bool = False
) -> Rendered:
    """Return the parts of one mail, as `mail_rendering.rendered`; TemplateError beyond bounds."""
    return Rendered(**_asked(templates, language, values, is_tried=is_tried))


def bounded_templates_of(settings: TemplateSettings) -> MailTemplates:
    """Return the templates that the settings name, tried as `templates_of` does, within bounds."""
    templates = read(settings)
    _asked(templates, None, None, is_tried=True)
    return templates


def _asked(*given: object, is_tried: bool) -> dict[str, str]:
    command, asked = [sys.executable, "-P", "-m", __name__], pickle.dumps((given, is_tried))
    if not AT_ONCE.acquire(timeout=WAIT_SECONDS):
        raise ShardpostError("other mails are being rendered: try again in a minute")
    try:
        done = subprocess.run(
            command, input=asked, capture_output=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ShardpostError(f"expected a mail within {MOST_SECONDS:g} s, found none") from None
    finally:
        AT_ONCE.release()
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise TemplateError(
            f"expected a mail within {CPU_SECONDS} s of processor time and {MOST_MEMORY >> 20} MB,"
            f" found none: {one_line(said) or f'exit code {done.returncode}'}"
        )
    answer: dict[str, str] = json.loads(done.stdout)
    if "error" in answer:
        raise TemplateError(answer["error"])
    return answer


def _answer() -> dict[str, str]:
    """Return what the parent asks for, in the child; nothing where it only tries templates."""
    (templates, language, values), is_tried = pickle.load(sys.stdin.buffer)  # noqa: S301 - written here
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    try:
        if values is None:
            mail_rendering.check(templates)
            return {}
        found = mail_rendering.rendered(templates, language, values, is_tried=is_tried)
    except ShardpostError as error:
        return {"error": str(error)}
    if (size := len(found.text) + len(found.html)) > MOST_CHARACTERS:
        return {"error": f"expected at most {MOST_CHARACTERS:,} characters, found {size:,}"}
    return asdict(found)


if __name__ == "__main__":
    print(json.dumps(_answer()))  # noqa: T201
