"""Kafka through confluent-kafka: clients, offsets, reading, transactions; and one in memory."""
