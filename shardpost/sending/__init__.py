"""Sending the weekly e-mail of one shard: the plan, the pace, and the shard itself."""
