"""The channels of SHARDPOST_ALERTS: URLs of Apprise, whose parts may be secrets.

A channel that is down, or whose URL Apprise refuses, stops nothing: the others get their messages.
"""

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from logging.handlers import BufferingHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from shardpost.alerts.model.alert import Message
from shardpost.errors import ShardpostError, one_line
from shardpost.installation import Installation
from shardpost.locks.locks import exclusive
from shardpost.locks.shared_files import Files, SharedFile
from shardpost.waiting import answers

# How long all channels together may take.
PATIENCE_SECONDS = 30.0
# Parts of a URL that are as short are no secrets, and hide nothing if they are replaced.
LEAST_SECRET = 4
HIDDEN = "****"
REFUSED = "the service refused it"
REFUSED_URL = (
    "Apprise refuses this URL (not shown: it may contain secrets): expected a form listed at"
    " https://appriseit.com"
)
# The file in SHARDPOST_HOME that has every alert; where the tables are on an object store, to which
# nothing can be appended, one beside them for each month.
LOG = "alerts.log"
STORED_LOG = "alerts-%Y-%m.log"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """The result of sending a message through one channel; `problem` is None if it was accepted."""

    channel: str
    problem: str | None = None

    def __str__(self) -> str:
        return f"{self.channel}: {f'failed: {self.problem}' if self.problem else 'delivered'}"


@dataclass(frozen=True)
class Channel:
    """One URL, as a service of Apprise, and a name that is its own and has none of its secrets.

    `service` is None if Apprise refuses the URL: then nothing can be sent.
    """

    name: str
    url: str = field(repr=False)
    service: Any = field(repr=False, compare=False)
    installation: str | None = None  # its name, if it is one of several

    def send(self, message: Message) -> Delivery:
        """Send a message, in several if the service takes no longer one; never raises."""
        if self.service is None:
            return Delivery(self.name, REFUSED_URL)
        with _heard() as heard:
            try:
                name = f"{self.installation}: " if self.installation else ""
                done = _notify(self.service, replace(message, title=name + message.title))
                problem = None if done else next(map(_text, reversed(heard)), REFUSED)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
        return Delivery(self.name, problem and one_line(without_secrets(problem, self.url)))


def _notify(service: Any, message: Message) -> bool:
    """Have Apprise send plain text: it escapes it for services that render HTML or Markdown."""
    from apprise import Apprise, NotifyFormat

    kind = "success" if message.is_good else "failure"
    sender = Apprise()
    sender.add(service)
    return bool(
        sender.notify(
            body=message.body, title=message.title, notify_type=kind, body_format=NotifyFormat.TEXT
        )
    )


def _text(record: logging.LogRecord) -> str:
    """Return Apprise's log, with the errors that it reports only by a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return record.getMessage() + (f": {type(error).__name__}: {error}" if error else "")


def channels(installation: Installation) -> list[Channel]:
    """Return the channels of an installation; of a URL, only service and host are shown.

    One that Apprise refuses is among them, under its scheme. Of a salted hash of the URL, a name
    ends with 16 bits: they tell a URL from the one before it, and not what its secrets are.
    """
    urls = (installation.settings.alerts or "").split()
    return [_channel(installation, *one) for one in enumerate(urls, 1)]


def _channel(installation: Installation, number: int, url: str) -> Channel:
    from apprise import Apprise, AppriseAsset, OverflowMode

    mark = blake2b(f"{installation.tables.root} {url}".encode(), digest_size=2).hexdigest()
    with _heard():
        # Without a time limit of its own: it would send in threads that outlive ours.
        asset = AppriseAsset(service_timeout=0)
        service = Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        return Channel(f"{number}: {url.partition('://')[0]} #{mark}", url, None)
    service.overflow_mode = OverflowMode.SPLIT
    name = f"{number}: {service.service_name}{_host(url)} #{mark}"
    return Channel(name, url, service, installation.settings.installations)


def append(files: Files, text: str, now: datetime) -> None:
    """Append to alerts.log, each line with the time; only log if that file cannot be written.

    On this machine if the store does not answer: the alert may be of that.
    """
    lines = "".join(f"{now:%Y-%m-%dT%H:%M:%SZ} {line}\n" for line in text.splitlines() if line)
    if not lines:
        return None
    if files.tables.is_on_store:
        try:
            with exclusive(files, LOG, "writing an alert", wait=PATIENCE_SECONDS):
                stored = SharedFile(files, f"{now:{STORED_LOG}}")
                return stored.change(lambda before: (before or "") + lines)
        except (ShardpostError, OSError) as error:
            log.warning("%s is written here, not on the store: %s", files.home / LOG, error)
    try:
        # In one write, so that lines of others are not between these.
        with (files.folder() / LOG).open("a+b", buffering=0) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the line before was cut off
                    lines = f"\n{lines}"
            file.write(lines.encode())
    except OSError as error:  # the channels get the message nevertheless
        log.warning("%s cannot be written: %s", error.filename or LOG, error.strerror)


def send_all(
    messages: Mapping[Channel, Message], patience: float = PATIENCE_SECONDS
) -> list[Delivery]:
    """Send each channel its message, in parallel; one that takes longer has failed."""
    sending = [partial(channel.send, message) for channel, message in messages.items()]
    found, late = dict(answers(sending, patience)), f"no answer within {patience:g} s"
    return [found.get(n) or Delivery(channel.name, late) for n, channel in enumerate(messages)]


def without_secrets(text: str, url: str) -> str:
    """Return a text in which each part of a URL but its scheme and its host is hidden."""
    behind = url.partition("://")[2]
    shown = {urlsplit(url).hostname, *_host(url).split()}
    parts = {part for part in re.split(r"[/:@?&=;,+]", behind) if len(part) >= LEAST_SECRET}
    parts |= {unquote(part) for part in parts}
    for part in sorted(parts - shown, key=len, reverse=True):
        text = text.replace(part, HIDDEN)
    return text


def _host(url: str) -> str:
    """Return the host that a URL names, if it is one: many services have a secret in its place."""
    host = urlsplit(url).hostname or ""
    is_host = host == "localhost" or "." in host or ":" in host
    return f" at {host}" if is_host else ""


@contextmanager
def _heard() -> Iterator[list[logging.LogRecord]]:
    """Keep what Apprise and its HTTP client log, which has URLs, out of all logs.

    Yields the warnings of this thread.
    """
    handler, thread = BufferingHandler(sys.maxsize), threading.get_ident()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.thread == thread)
    ours = logging.getLogger("apprise")
    ours.propagate = False
    ours.setLevel(logging.WARNING)
    http = logging.getLogger("urllib3")
    http.setLevel(max(http.level, logging.INFO))
    ours.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        ours.removeHandler(handler)
