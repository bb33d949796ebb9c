"""How many rows of the newest snapshot have the contact of a client; no JVM."""

from shardpost.delta import snapshots
from shardpost.delta.query import at_snapshot, rows
from shardpost.delta.sql import text_literal
from shardpost.holders.model.tables import CLIENT_EVENTS, CLIENTS
from shardpost.settings import Settings

_HAS_CONTACT = {
    CLIENTS: "name IS NOT NULL OR email IS NOT NULL",
    CLIENT_EVENTS: "name IS NOT NULL OR email IS NOT NULL OR value IS NOT NULL",
}


def rows_with_contact(settings: Settings, client: str) -> dict[str, int]:
    """Return {table: rows} of the tables that have contacts; {} before the first snapshot."""
    snapshot = snapshots.newest(settings)
    if snapshot is None:
        return {}
    found = {}
    for table, has_contact in _HAS_CONTACT.items():
        if table.name not in snapshot.tables:
            continue
        key = text_literal(client)
        sql = f"SELECT count(*) AS n FROM {table.name} WHERE key = {key} AND ({has_contact})"  # noqa: S608
        found[table.name] = int(rows(settings, sql, at_snapshot(snapshot, table))[0]["n"])
    return found
