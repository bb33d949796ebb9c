"""How the variables are called that settings are read from."""

PREFIX = "SHARDPOST_"
# Before a client setting of librdkafka: SHARDPOST_KAFKA__SECURITY_PROTOCOL.
CLIENT_PREFIX = "SHARDPOST_KAFKA__"
