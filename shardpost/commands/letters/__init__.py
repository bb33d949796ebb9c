"""`shardpost letters`: the dead letters, and what a person decides about them."""

from shardpost.commands.letters.group import command

__all__ = ["command"]
