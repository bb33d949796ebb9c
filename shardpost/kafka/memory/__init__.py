"""Kafka in memory, for tests: a broker in this process, and clients as confluent-kafka's.

`running(address)` starts a broker; settings with `bootstrap_servers` of that address, which begins
with `memory://`, have the factories of `shardpost.kafka.clients` return its clients. They have
that part of the interface that Shardpost uses, and raise what librdkafka raises. The same tests
hold for it and for a real broker (`tests/support/kafka_contract`).
"""
