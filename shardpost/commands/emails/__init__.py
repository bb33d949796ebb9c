"""`shardpost emails`: the delivery status of a week, and a person's decisions about it."""

from shardpost.commands.emails.group import command

__all__ = ["command"]
