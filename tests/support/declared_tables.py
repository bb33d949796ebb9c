"""All Delta tables that Shardpost declares."""

from shardpost.dead_letters.model.tables import DEAD_LETTERS
from shardpost.delta.snapshots import SNAPSHOTS
from shardpost.holders.model.tables import VIEW
from shardpost.weekly_email.model.tables import AUDIENCES, CLOSED_WEEKS, FROZEN_WEEKS, LEDGER_MARKS

TABLES = (*VIEW, SNAPSHOTS, AUDIENCES, FROZEN_WEEKS, CLOSED_WEEKS, LEDGER_MARKS, DEAD_LETTERS)
