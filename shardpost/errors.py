"""The errors that a person sees: one clear line, and the exit code that goes with it."""

DONE = 0
COULD_NOT = 1
BAD_USAGE = 2
NEEDS_ATTENTION = 3


class ShardpostError(Exception):
    """Something could not be done.

    Its text says where, what was expected, what was found, what to do.
    """

    exit_code = COULD_NOT


class UsageError(ShardpostError):
    """The command, a parameter or a setting is wrong; trying again does not help."""

    exit_code = BAD_USAGE
