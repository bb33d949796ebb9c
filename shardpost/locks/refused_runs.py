"""Why the last run of each job was refused, as doctor, watch and page report it: shared files.

Every error that ends a run is recorded, also a wrong setting, except transient ones and wrong
arguments, which whoever gave them reads; the next successful run clears it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from shardpost.errors import DONE, NEEDS_ATTENTION, ShardpostError, WrongArgumentError
from shardpost.kafka.kafka import KafkaUnreachableError
from shardpost.locks.locks import LockedError
from shardpost.locks.shared_files import Files, SharedFile, shared_files

log = logging.getLogger(__name__)

FOLDER = "refused-runs"
# A scheduled run comes again within a week: what is older is of one that a person has given up.
REPORTED_FOR = timedelta(days=8)


@dataclass(frozen=True)
class Refusal:
    """Why a run was refused, and when."""

    why: str
    at: datetime


_FORM = TypeAdapter(Refusal)


def refusals(files: Files, now: datetime) -> dict[str, Refusal]:
    """Return {job: why its last run was refused} of those that were lately."""
    texts = {job: file.read() for job, file in _noted(files)}
    known = {job: _FORM.validate_json(text) for job, text in texts.items() if text}
    return {job: one for job, one in known.items() if now - one.at < REPORTED_FOR}


_PASSING = (KafkaUnreachableError, LockedError, WrongArgumentError)


@contextmanager
def noting(files: Files, job: str) -> Iterator[None]:
    """Note why a run of a job is refused."""
    try:
        yield
    except ShardpostError as error:
        if not isinstance(error, _PASSING):
            note(files, job, str(error))
        raise


def note_result(files: Files, job: str, code: int, document: dict[str, Any]) -> None:
    """Note whether a run that ended with that exit code and JSON document was refused."""
    if code in (DONE, NEEDS_ATTENTION):
        note(files, job, document.get("refused"))


def note(files: Files, job: str, why: str | None) -> None:
    """Note why the last run of a job was refused, None if it was not; the run ends as it does.

    `job` may be a part of one, its name followed by which; what is noted of a job ends what its
    parts were noted for.
    """
    try:
        if why is not None:
            refusal = _FORM.dump_json(Refusal(why, datetime.now(UTC)))
            SharedFile(files, f"{FOLDER}/{job}.json").write(refusal.decode())
        for noted, file in _noted(files):
            if f"{noted} ".startswith(f"{job} ") and (why is None or noted != job):
                file.remove()
    except Exception as error:
        log.warning("cannot record whether %s was refused: %s", job, error)


def _noted(files: Files) -> Iterator[tuple[str, SharedFile]]:
    for name, file in shared_files(files, FOLDER):
        yield name.removesuffix(".json"), file
