"""What a person should know of a look at the inputs: in the log, the result and the exit code."""

import logging

from shardpost.errors import DONE, NEEDS_ATTENTION
from shardpost.holders.model.unread import Look, Unread
from shardpost.spark.job_spec import JobResult

log = logging.getLogger(__name__)


def report(look: Look, unread: Unread) -> None:
    """Warn of open transactions, of retry topics that are gone, and of a clock that was ahead."""
    if look.ahead is not None:
        log.warning(
            "the last snapshot says that the inputs were looked at at %s UTC, and now it is %s UTC"
            " by this machine's clock: a compaction ran by a clock that was ahead, or this one is"
            " behind. When they were last looked at counts as unknown; if this clock is wrong,"
            " correct it, and compact again",
            *(f"{at:%Y-%m-%d %H:%M}" for at in (look.ahead, look.at)),
        )
    for topic in sorted(unread.gone):
        log.warning(
            "retry topic %s was read before and is not there any more: corrections in it that were"
            " not read have no effect",
            topic,
        )
    for transaction in unread.open_transactions:
        log.warning(
            "%s: an open transaction: nothing behind it can be read, and looked_at stays behind"
            " until it ends (docs/compaction.md, An open transaction)",
            transaction,
        )


def with_attention(result: JobResult, unread: Unread) -> JobResult:
    """Return a result with the open transactions, and NEEDS_ATTENTION if somebody should know.

    So it is if there are any, or keys of which good records may be lost.
    """
    code, document = result
    found = [one.as_json() for one in unread.open_transactions]
    needs_attention = found or document["uncertain"]
    code = NEEDS_ATTENTION if needs_attention and code == DONE else code
    return code, document | {"open_transactions": found}
