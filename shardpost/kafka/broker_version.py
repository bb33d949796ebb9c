"""Which Kafka a broker is, as far as it says: by the newest `metadata.version` that it supports.

librdkafka does not say. So it is asked in Kafka's own protocol (ApiVersions, KIP-511 and KIP-584),
which a broker answers before any login.
"""

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from shardpost.kafka.releases import release
from shardpost.settings import Settings

API_VERSIONS, VERSION, CORRELATION = 18, 3, 1
SUPPORTED_FEATURES = 0  # the tag of that field
MOST_BYTES = 1 << 20

T = TypeVar("T")


def broker_version(settings: Settings, seconds: float) -> str | None:
    """Return the release of the first bootstrap server, such as `4.2`; None if it does not say.

    OSError if it does not answer, or not in this protocol.
    """
    host, _, port = settings.bootstrap.split(",")[0].strip().rpartition(":")
    return version_at(settings, host.strip("[]"), int(port), seconds)


def version_at(settings: Settings, host: str, port: int, seconds: float) -> str | None:
    """Return the release of one broker, as `broker_version` does."""
    with socket.create_connection((host, port), seconds) as plain:
        connection = _secured(settings, plain, host)
        connection.settimeout(seconds)
        connection.sendall(request())
        size = int.from_bytes(_read(connection, 4))
        if not 0 < size <= MOST_BYTES:
            raise OSError(f"expected an answer of Kafka, found one of {size} bytes")
        level = metadata_level(_read(connection, size))
    return None if level is None else release(level)


def _secured(settings: Settings, plain: socket.socket, host: str) -> socket.socket:
    if "ssl" not in settings.kafka.get("security.protocol", "").lower():
        return plain
    context = ssl.create_default_context(cafile=settings.kafka.get("ssl.ca.location"))
    if certificate := settings.kafka.get("ssl.certificate.location"):
        password = settings.kafka.get("ssl.key.password")
        context.load_cert_chain(certificate, settings.kafka.get("ssl.key.location"), password)
    if settings.kafka.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context.wrap_socket(plain, server_hostname=host)


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := connection.recv(size - len(found))):
            raise OSError("the connection was closed")
        found += more
    return found


def request() -> bytes:
    """Return an ApiVersions request, with its length."""
    client = b"shardpost"
    header = API_VERSIONS.to_bytes(2) + VERSION.to_bytes(2) + CORRELATION.to_bytes(4)
    header += len(client).to_bytes(2) + client + b"\0"
    software = bytes([len(client) + 1]) + client
    body = header + software + software + b"\0"
    return len(body).to_bytes(4) + body


def metadata_level(answer: bytes) -> int | None:
    """Return the highest `metadata.version` in an ApiVersions response; None if it has none.

    OSError for what is no such response.
    """
    reader = _Reader(answer)
    try:
        reader.skip(4)  # correlation id
        if reader.number(2):  # an error: the broker knows no version 3, so it is older than 2.4
            return None
        reader.each(reader.skip_api)
        reader.skip(4)  # throttle time
        for _ in range(reader.varint()):
            tag, size = reader.varint(), reader.varint()
            if tag == SUPPORTED_FEATURES:
                return dict(reader.each(reader.feature)).get("metadata.version")
            reader.skip(size)
    except IndexError:
        raise OSError("expected an answer of Kafka, found something else") from None
    return None


@dataclass
class _Reader:
    """Kafka's primitive types, one after the other; IndexError at the end."""

    data: bytes
    at: int = 0

    def skip(self, size: int) -> None:
        self.at += size

    def number(self, size: int) -> int:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise IndexError
        self.at += size
        return int.from_bytes(found, signed=True)

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def each(self, read: Callable[[], T]) -> list[T]:
        """Read a compact array; its length is one more than its elements."""
        return [read() for _ in range(self.varint() - 1)]

    def skip_api(self) -> None:
        self.skip(6)  # its key, its lowest and its highest version
        self.skip_tags()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())

    def feature(self) -> tuple[str, int]:
        """Read a supported feature: its name and its highest level."""
        size = self.varint() - 1
        name = self.data[self.at : self.at + size].decode(errors="replace")
        self.skip(size + 2)
        highest = self.number(2)
        self.skip_tags()
        return name, highest
