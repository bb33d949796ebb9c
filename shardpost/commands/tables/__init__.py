"""`shardpost tables`: how large the tables are, and their maintenance."""

from shardpost.commands.tables.group import command

__all__ = ["command"]
