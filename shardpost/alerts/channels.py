"""The channels of SHARDPOST_ALERTS: URLs of Apprise, whose parts may be secrets.

A channel that is down stops nothing, and the others report it.
"""

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging.handlers import BufferingHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from shardpost.alerts.model.alert import CHANNEL_DOWN, Message
from shardpost.errors import ShardpostError, one_line
from shardpost.settings import Settings

# How long all channels together may take.
PATIENCE_SECONDS = 30.0
# Parts of a URL that are as short are no secrets, and hide nothing if they are replaced.
LEAST_SECRET = 4
HIDDEN = "****"
REFUSED = "the service refused it"
# In SHARDPOST_HOME: which channels did not accept the last message.
DOWN = "alert-channels-down.json"

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
    """One URL, as a service of Apprise, and a name for it that has none of its secrets."""

    name: str
    url: str = field(repr=False)
    service: Any = field(repr=False)

    def send(self, message: Message) -> Delivery:
        """Send a message; never raises."""
        kind = "success" if message.is_good else "failure"
        with _heard() as heard:
            try:
                done = self.service.notify(body=message.body, title=message.title, notify_type=kind)
                problem = None if done else (heard[-1].getMessage() if heard else REFUSED)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
        return Delivery(self.name, problem and one_line(without_secrets(problem, self.url)))


def channels(settings: Settings) -> list[Channel]:
    """Return the channels, in the order of the setting; ShardpostError for one unknown to Apprise.

    Of a URL, only the service and the host are shown.
    """
    from apprise import Apprise

    made = []
    for number, url in enumerate(settings.alert_urls, 1):
        with _heard():
            service = Apprise.instantiate(url, suppress_exceptions=True)
        if service is None:
            raise ShardpostError(
                f"SHARDPOST_ALERTS: URL {number} ({url.partition('://')[0]}://…): expected one that"
                " Apprise understands, as https://appriseit.com lists them; found one that it"
                " refuses (not shown: it may have secrets)"
            )
        name = f"{number}: {service.service_name}{_host(url)}"
        made.append(Channel(name, url, service))
    return made


def tell(settings: Settings, message: Message) -> list[Delivery]:
    """Append a message to alerts.log and send it through all channels; return the results.

    Raises nothing for a channel that is down or a URL that is wrong: the others report that.
    """
    append(settings, message.in_log or message.body)
    if not settings.alert_urls:
        return []
    try:
        known = channels(settings)
    except ShardpostError as error:
        deliveries = [Delivery("SHARDPOST_ALERTS", str(error))]
        known = []
    else:
        deliveries = send_all(known, message)
    failed = [delivery for delivery in deliveries if delivery.problem]
    for delivery in failed:
        log.warning("alert channel %s", delivery)
        append(settings, f"alert channel {delivery}")
    _tell_others(settings, known, failed)
    return deliveries


def _tell_others(
    settings: Settings, channels: Sequence[Channel], failed: Sequence[Delivery]
) -> None:
    """Report through the channels that work which do not, once as long as that lasts."""
    names = {delivery.channel for delivery in failed}
    known = known_down(settings)
    others = [channel for channel in channels if channel.name not in names]
    new = [delivery for delivery in failed if delivery.channel not in known]
    if new and others:
        down = [f"alert channel {delivery}" for delivery in new]
        text = "\n".join([*down, f"what to do: {settings.runbook}{CHANNEL_DOWN}"])
        send_all(others, Message("Shardpost: an alert channel is down", text))
    if back := sorted(known & {channel.name for channel in others}):
        text = "\n".join(f"alert channel {name}: it works again" for name in back)
        send_all(others, Message("Shardpost: an alert channel works again", text, is_good=True))
    if known != names:
        with suppress(OSError):  # then it is reported again
            (settings.home / DOWN).write_text(json.dumps(sorted(names)))


def known_down(settings: Settings) -> set[str]:
    """Return the names of the channels that did not accept the last message."""
    try:
        return set(json.loads((settings.home / DOWN).read_text()))
    except (OSError, ValueError, TypeError):
        return set()


def append(settings: Settings, text: str) -> None:
    """Append to alerts.log, each line with the time; only log if that file cannot be written."""
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        with (settings.folder() / "alerts.log").open("a") as file:
            file.writelines(f"{at} {line}\n" for line in text.splitlines() if line)
    except OSError as error:  # the channels get the message all the same
        log.warning("%s cannot be written: %s", error.filename or "alerts.log", error.strerror)


def send_all(
    channels: Sequence[Channel], message: Message, patience: float = PATIENCE_SECONDS
) -> list[Delivery]:
    """Send a message through all channels in parallel; one that takes longer has failed."""
    deliveries: dict[str, Delivery] = {}

    def send(channel: Channel) -> None:
        deliveries[channel.name] = channel.send(message)

    # They end with the process at the latest.
    threads = [threading.Thread(target=send, args=(channel,), daemon=True) for channel in channels]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {patience:g} s"
    return [deliveries.get(channel.name) or Delivery(channel.name, late) for channel in channels]


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
