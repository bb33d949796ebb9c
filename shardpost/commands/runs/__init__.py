"""`shardpost runs`: run requests and the runs that they win."""

from shardpost.commands.runs.group import command

__all__ = ["command"]
