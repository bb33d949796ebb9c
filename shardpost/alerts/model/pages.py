"""The sections of the runbook that are of no rule: what is told at once, and is not resolved."""

CHANNEL_DOWN = "alert-channel-down"
TASK_FAILED = "task-failed"
NEEDS_A_PERSON = "needs-attention"
