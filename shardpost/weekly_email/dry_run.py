"""The dry run: list what a run of now would do to each client, and change nothing."""

import json
import logging
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from shardpost.settings import Settings
from shardpost.weekly_email import frozen_weeks
from shardpost.weekly_email.dry_run_text import summary, text_lines
from shardpost.weekly_email.forecast import DryRunList
from shardpost.weekly_email.model.email_request import EmailRequest
from shardpost.weekly_email.model.prepared_week import PreparedWeek
from shardpost.weekly_email.send_shard import SendOptions
from shardpost.weekly_email.spark.dry_run_tasks import list_clients

log = logging.getLogger(__name__)

# Clients of each list that go into a log.
MOST_LOGGED = 1000


def dry_run(week: PreparedWeek, request: EmailRequest, settings: Settings) -> dict[str, Any]:
    """List what would become of each client.

    The lists go where the request says: into a folder, a file of JSON lines for each; as text into
    a file, such as the log; or into the result. However many clients there are, only the last of
    these needs memory for them.
    """
    with TemporaryDirectory() as temporary:
        is_folder = request.recipients is not None and request.recipients.is_dir()
        folder = request.recipients if request.recipients and is_folder else Path(temporary)
        result = _write(week, request, settings, folder)
        log.info("%s: %s", week.iso_week, summary(result))
        if request.recipients is None:
            return result | {str(kind): _read(folder / kind) for kind in DryRunList}
        if not is_folder:
            with request.recipients.open("w") as file:
                file.writelines(text_lines(result, folder, MOST_LOGGED))
        return result


def _write(
    week: PreparedWeek, request: EmailRequest, settings: Settings, folder: Path
) -> dict[str, Any]:
    """Write the lists, a file each; return the result without them."""
    resend = request.resend_policy(settings.on_unknown)
    options = SendOptions(week.context, resend, request.now, time.time(), is_early=request.early)
    before = frozen_weeks.newest_before(settings, week.iso_week)
    counts = Counter(dict.fromkeys(map(str, DryRunList), 0))
    with ExitStack() as opened:
        files: dict[str, TextIO] = {
            kind: opened.enter_context((folder / kind).open("w")) for kind in DryRunList
        }
        for line in list_clients(settings, week, options, before):
            files[line.list].write(line.text + "\n")
            counts[line.list] += 1
    return {
        "week": str(week.iso_week),
        "snapshot": week.snapshot_number,
        "compared_with": before.week if before else None,
        "counts": dict(counts),
    }


def _read(path: Path) -> list[Any]:
    with path.open() as lines:
        return list(map(json.loads, lines))
