"""Kafka through confluent-kafka: clients, topics, offsets, reading, transactions, groups.

Models may know records.py, which needs no client.
"""
