"""Kafka through confluent-kafka: clients, topics, offsets, reading, transactions, groups.

Models may know coordinates.py, records.py and partitioning.py, which need no client.
"""
