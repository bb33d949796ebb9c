"""The release of a broker, by the newest `metadata.version` that it supports.

Asked in Kafka's own protocol (ApiVersions, KIP-511 and KIP-584), since librdkafka does not tell;
a broker answers that before any login.
"""

import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from io import SEEK_CUR, BytesIO
from tempfile import NamedTemporaryFile

from shardpost.kafka.releases import release

API_VERSIONS, VERSION, CORRELATION = 18, 3, 1
MOST_BYTES = 1 << 20


def broker_version(config: Mapping[str, str], seconds: float) -> str | None:
    """Return the release of the first bootstrap server, such as `4.2`; None if it does not say.

    OSError if it does not answer, or not in this protocol.
    """
    host, _, port = config["bootstrap.servers"].split(",")[0].strip().rpartition(":")
    return version_at(config, host.strip("[]"), int(port), seconds)


def version_at(config: Mapping[str, str], host: str, port: int, seconds: float) -> str | None:
    """Return the release of one broker, as `broker_version` does."""
    plain = socket.create_connection((host, port), seconds)
    with plain, _secured(config, plain, host) as connection:
        connection.settimeout(seconds)
        connection.sendall(request())
        size = int.from_bytes(_read(connection, 4))
        if not 0 < size <= MOST_BYTES:
            raise OSError(f"expected an answer of Kafka, found one of {size} bytes")
        level = metadata_level(_read(connection, size))
    return None if level is None else release(level)


def _secured(config: Mapping[str, str], plain: socket.socket, host: str) -> socket.socket:
    if "ssl" not in config.get("security.protocol", "").lower():
        return plain
    context = ssl.create_default_context(
        cafile=config.get("ssl.ca.location"), cadata=config.get("ssl.ca.pem")
    )
    _add_certificate(context, config)
    if config.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    return context.wrap_socket(plain, server_hostname=host)


def _add_certificate(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """Have a context present the client's certificate, which settings name or are, if any."""
    password = given.get("ssl.key.password", "")  # without any, OpenSSL asks on the terminal
    if certificate := given.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, given.get("ssl.key.location"), password)
    elif text := given.get("ssl.certificate.pem"):
        with NamedTemporaryFile("w", suffix=".pem") as file:  # it takes only files
            file.write(f"{text}\n{given.get('ssl.key.pem', '')}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password)


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


# A supported feature: its name with its length, its lowest and its highest level. Those come before
# the features in force, which have the same names.
_SUPPORTED = re.compile(rb"\x11metadata\.version..(..)", re.DOTALL)


def metadata_level(answer: bytes) -> int | None:
    """Return the highest `metadata.version` in an ApiVersions response; None if it has none.

    OSError for what is no such response, or ends before it says the level.
    """
    correlation, error = answer[:4], answer[4:6]
    if correlation != CORRELATION.to_bytes(4) or len(error) < 2:
        raise OSError("expected an answer of Kafka, found something else")
    if any(error):  # the broker knows no version 3, so it is older than 2.4
        return None
    if found := _SUPPORTED.search(answer):
        return int.from_bytes(found[1])
    if not _is_whole(BytesIO(answer[6:])):
        raise OSError("expected an answer of Kafka, found one that is cut off")
    return None


def _is_whole(fields: BytesIO) -> bool:
    """Tell whether the fields after the error end where their own sizes say (KIP-482)."""
    with suppress(IndexError):
        for _ in range(_varint(fields) - 1):
            fields.seek(6, SEEK_CUR)  # an API: its key, its lowest and its highest version
            _skip_tagged(fields)
        fields.seek(4, SEEK_CUR)  # the throttle time
        _skip_tagged(fields)
        return fields.tell() == len(fields.getbuffer())
    return False


def _skip_tagged(fields: BytesIO) -> None:
    for _ in range(_varint(fields)):
        _varint(fields)  # the tag
        fields.seek(_varint(fields), SEEK_CUR)


def _varint(fields: BytesIO) -> int:
    """Read an unsigned number of seven bits a byte, the lowest first; IndexError at the end."""
    found = 0
    for shift in range(0, 35, 7):
        byte = fields.read(1)[0]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found
    raise IndexError("expected a number of at most five bytes")
