"""Kafka through confluent-kafka: clients, topics, offsets, reading, transactions, groups.

What needs no client, and so may be known to models, is in coordinates.py, records.py
and partitioning.py.
"""
