"""Import ids: what tells whether a list was applied already.

Without one of its own, an import has the id of its content: the same rows in any order, from
whatever source, are the same import. Applied again after other changes, it is another import, with
the number of its application behind the id.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from shardpost.errors import ShardpostError, UsageError, one_line

HEADER = "import-id"
CONTENT_HEADER = "import-content"
MOST_CHARACTERS = 200


@dataclass(frozen=True)
class AppliedImport:
    """That an import was applied, as the topic `decisions` has it."""

    import_id: str
    content: str
    who: str
    when: datetime

    def as_json(self) -> dict[str, str]:
        """Return when, and by whom."""
        return {"at": self.when.isoformat(), "by": self.who}


Lookup = Callable[[str], AppliedImport | None]


def require_usable(given: str) -> None:
    """Refuse an id that a person gave, and that cannot be printed and found again."""
    if not given.strip() or given != one_line(given) or len(given) > MOST_CHARACTERS:
        raise UsageError(
            f"--id: expected up to {MOST_CHARACTERS} printable characters, found {given!r}"
        )


def is_of(import_id: str, given: str | None, content: str) -> bool:
    """Tell whether records with that id are of the import with this given id, or content."""
    if given is not None:
        return import_id == given
    return re.fullmatch(rf"{content}(-[0-9]+)?", import_id) is not None


def choose(
    given: str | None, content: str, unread: str | None, *, differs: bool, lookup: Lookup
) -> tuple[str, AppliedImport | None]:
    """Return the id of this import, and that it was applied, if it was.

    `unread` is the id of its own records that no compaction has read yet; `differs` says whether
    anything is to be written. ShardpostError if the given id is that of another list.
    """
    if given is not None or unread is not None:
        chosen = given if given is not None else str(unread)
        applied = lookup(chosen)
        if applied and applied.content != content:
            raise ShardpostError(
                f"import {chosen} was applied by {one_line(applied.who)} at"
                f" {applied.when.isoformat()} with other rows: nothing was changed; give this list"
                " another --id"
            )
        return chosen, applied
    before: AppliedImport | None = None
    number = 1
    while (found := lookup(_nth(content, number))) is not None:
        before, number = found, number + 1
    if before is not None and not differs:
        return before.import_id, before
    return _nth(content, number), None


def _nth(content: str, number: int) -> str:
    return content if number == 1 else f"{content}-{number}"
