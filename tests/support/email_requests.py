"""Requests of the weekly e-mail, in the words of its command and its DAG."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from shardpost.installation import Installation
from shardpost.instants import parse_instant
from shardpost.weekly_email.email_job import EmailRequest, Mode
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.prepared_week import PreparedWeek, preview_week
from shardpost.weekly_email.week_state import WeekState

MODES = {
    frozenset[str](): Mode.SEND,
    frozenset({"--dry-run"}): Mode.DRY_RUN,
    frozenset({"--freeze-only"}): Mode.FREEZE,
    frozenset({"--freeze-only", "--dry-run"}): Mode.LIST_GROUPS,
}
FLAGS = {"--early": "early", "--scheduled": "is_scheduled", "--accept-drop": "accept_drop"}
OPTIONS: dict[str, tuple[str, Callable[[str], object]]] = {
    "--shards": ("shards", str),
    "--again": ("again", str),
    "--on-unknown": ("on_unknown", str),
    "--as-of": ("as_of", parse_instant),
    "--recipients": ("recipients", Path),
}


def email_request(week: IsoWeek, *given: str, now: datetime) -> EmailRequest:
    """Return a request of that week by flags such as `--freeze-only` and `--again FAILED`."""
    words, modes = iter(given), set[str]()
    fields: dict[str, Any] = {}
    for word in words:
        if word in OPTIONS:
            name, convert = OPTIONS[word]
            fields[name] = convert(next(words))
        elif word in FLAGS:
            fields[FLAGS[word]] = True
        else:
            modes.add(word)
    return EmailRequest(week, now, MODES[frozenset(modes)], **fields)


def preview(request: EmailRequest, installation: Installation) -> PreparedWeek:
    """Return the week that a request is about as it is now."""
    return preview_week(installation, request, WeekState(installation, request.week))
