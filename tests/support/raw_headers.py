"""Records whose headers have names that are no UTF-8: Python's client cannot send them, C's can."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka

from shardpost.settings import Settings

_TOPIC, _VALUE, _KEY, _HEADERS, _FLAGS, _END = 1, 4, 5, 10, 7, 0
_PRODUCER, _COPY, _WAIT_MS = 0, 2, 20_000


def produce_raw(
    settings: Settings,
    topic: str,
    key: bytes,
    value: bytes,
    headers: Sequence[tuple[bytes, bytes]],
) -> None:
    """Produce one record through librdkafka itself, to where its key belongs."""
    lib = _library()
    conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
    why = ctypes.create_string_buffer(512)
    for option, text in (("bootstrap.servers", settings.bootstrap), ("partitioner", "murmur2")):
        assert lib.rd_kafka_conf_set(conf, option.encode(), text.encode(), why, 512) == 0, why.value
    client = ctypes.c_void_p(lib.rd_kafka_new(_PRODUCER, conf, why, 512))
    assert client, why.value
    try:
        own = ctypes.c_void_p(lib.rd_kafka_headers_new(len(headers)))
        for name, raw in headers:
            size = ctypes.c_ssize_t(len(name)), ctypes.c_ssize_t(len(raw))
            assert lib.rd_kafka_header_add(own, name, size[0], raw, size[1]) == 0
        error = lib.rd_kafka_producev(
            *(client, _TOPIC, topic.encode()),
            *(_KEY, key, ctypes.c_size_t(len(key))),
            *(_VALUE, value, ctypes.c_size_t(len(value))),
            *(_FLAGS, _COPY, _HEADERS, own, _END),
        )
        assert error == 0, error
        assert lib.rd_kafka_flush(client, _WAIT_MS) == 0
    finally:
        lib.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    """Return the librdkafka that confluent-kafka brings."""
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    [path] = folder.glob("librdkafka-*.so*")
    lib = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(lib, name).restype = ctypes.c_void_p
    return lib
