"""`shardpost rebuild`: a new version of the tables beside the old."""

from shardpost.commands.rebuild.group import command

__all__ = ["command"]
