"""The named steps of a dispatch, in order: before each of them it is killed or halted."""

STEPS = (
    "fence",
    "read commands",
    "see ends",
    "read requests",
    "commit commands",
    "commit releases",
    "start",
    "started",
    "commit started",
)
