"""Tells people what needs them: through the channels of SHARDPOST_ALERTS, and in alerts.log."""
