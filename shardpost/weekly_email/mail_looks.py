"""By what the mails of a week were written: kept, so that they can be shown as they were sent.

The table `mail_looks` has it, through deltalake: no JVM. Rows are only added. A run adds one,
behind the locks of its shards and before its first mail, for those of its shards that were not
mailed by the same sender and templates last.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from shardpost.delta import table_log
from shardpost.delta.object_store import Tables
from shardpost.delta.query import select
from shardpost.weekly_email.model.email_request import EmailContext
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.model.week_tables import MAIL_LOOKS, MailLook


def keep(tables: Tables, context: EmailContext, shards: Sequence[int], now: datetime) -> None:
    """Keep by what a run writes the mails of its shards from now on."""
    sender, templates = context.sender, context.templates
    look = MailLook(
        *(str(context.week), tuple(shards), now),
        *(sender.name, sender.address, sender.unsubscribe_url, sender.list_id),
        *(templates.all_files(), templates.language, templates.most_rows),
    )
    last = {shard: kept for kept in _kept(tables, context.week) for shard in kept.shards}
    changed = [one for one in shards if one not in last or not last[one].is_like(look)]
    if changed:
        look = replace(look, shards=tuple(changed))
        table_log.append(tables, MAIL_LOOKS, lambda: look)


def of_shard(tables: Tables, week: IsoWeek, shard: int) -> list[MailLook]:
    """Return by what the mails of a shard were written, the newest first."""
    return [look for look in reversed(_kept(tables, week)) if shard in look.shards]


def _kept(tables: Tables, week: IsoWeek) -> list[MailLook]:
    """Return the rows of a week, oldest first."""
    return select(tables, MAIL_LOOKS, MailLook, f"WHERE week = '{week}' ORDER BY at")
