"""Kafka through confluent-kafka: clients, offsets, reading to an end, transactions."""
