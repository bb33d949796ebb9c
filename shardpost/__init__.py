"""Shardpost.

Positions in Kafka become holders in Delta tables, and one weekly e-mail per client.
"""

__version__ = "0.2.0"
