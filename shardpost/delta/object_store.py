"""The object store of the tables, if SHARDPOST_TABLES is a URL: its address, small objects.

Keys and address are those of AWS's own variables (`settings.store`), which every process gets
by its environment or within the settings: never by its command line, and they are never shown.
A conditional put is what makes one of several writers win: of a table's version, and of a claim.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from shardpost.errors import ShardpostError, TablesAwayError, first_line

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

Opened = TypeVar("Opened")

# The store is asked once whether it answers; what is done later outlasts a short interruption.
CONNECT_SECONDS = 5
ANSWER_SECONDS = 10
REQUEST_SECONDS = 30
RETRIES = 10
RETRY_SECONDS = 60


@dataclass(frozen=True)
class Address:
    """Where a store is and who asks; `endpoint` is None for AWS itself, `prefix` has no slashes."""

    bucket: str
    prefix: str
    region: str
    endpoint: str | None
    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)

    @classmethod
    def of(cls, url: str, known: Mapping[str, str]) -> "Address":
        """Return the store of a URL, by variables of AWS."""
        at = urlsplit(url)
        return cls(
            at.netloc,
            at.path.strip("/"),
            known["AWS_REGION"],
            known.get("AWS_ENDPOINT_URL"),
            known["AWS_ACCESS_KEY_ID"],
            known["AWS_SECRET_ACCESS_KEY"],
            known.get("AWS_SESSION_TOKEN"),
        )

    @property
    def is_plain(self) -> bool:
        """Tell whether requests to it are without TLS."""
        return (self.endpoint or "").startswith("http://")

    @property
    def name(self) -> str:
        """Its name for people."""
        return self.endpoint or f"S3 in {self.region}"


class Objects:
    """Small objects below a folder of the store; names have slashes where they have folders."""

    def __init__(self, store: "S3Store | LocalStore", where: Address | None) -> None:
        self._store, self._where = store, where

    def get(self, name: str) -> bytes | None:
        """Return an object's content as it is now; None if there is none."""
        import obstore

        with self._errors():
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
        return None

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Put an object if none has that name; tell whether this one was put.

        Of several concurrent writers, one gets True. Content that no other writer puts tells its
        own writer from others also where the answer to a put was lost.
        """
        import obstore

        with self._errors():
            try:
                obstore.put(self._store, name, content, mode="create")
            except (obstore.exceptions.BaseError, OSError) as error:
                there = self.get(name)  # a store that does not answer says so here
                if there is None and not isinstance(error, obstore.exceptions.AlreadyExistsError):
                    raise
                return there == content
        return True

    def put(self, name: str, content: bytes) -> None:
        """Put an object, whatever is there."""
        import obstore

        with self._errors():
            obstore.put(self._store, name, content)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all objects below a folder, sorted; a thousand for each request."""
        import obstore

        with self._errors():
            pages = obstore.list(self._store, folder or None, chunk_size=1000)
            return sorted(one["path"] for page in pages for one in page)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, a thousand in each request; missing ones are skipped."""
        import obstore

        with self._errors(), suppress(FileNotFoundError):
            if listed := [*names]:
                obstore.delete(self._store, listed)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import obstore

        try:
            yield
        except (obstore.exceptions.BaseError, OSError) as error:
            raise TablesAwayError(problem(self._where, error)) from None


def open_objects(where: Address, *folders: str) -> Objects:
    """Return the objects below a folder of a store."""
    return Objects(_store(where, "/".join(folders)), where)


def require_answer(where: Address) -> None:
    """Raise ShardpostError within seconds if the store does not answer.

    Also if it lacks the bucket, or refuses the key.
    """
    import obstore

    try:
        obstore.list_with_delimiter(_store(where, "", once=True))
    except (obstore.exceptions.BaseError, OSError) as error:
        raise TablesAwayError(problem(where, error)) from None


def _store(where: Address, folder: str, *, once: bool = False) -> "S3Store":
    from obstore.store import S3Store

    seconds = ANSWER_SECONDS if once else REQUEST_SECONDS
    given: dict[str, Any] = {"endpoint": where.endpoint, "session_token": where.token}
    return S3Store(
        where.bucket,
        prefix="/".join(filter(None, (where.prefix, folder))) or None,
        region=where.region,
        access_key_id=where.key_id,
        secret_access_key=where.secret,
        client_options={
            "allow_http": where.is_plain,
            "connect_timeout": f"{CONNECT_SECONDS}s",
            "timeout": f"{seconds}s",
        },
        retry_config={
            "max_retries": 0 if once else RETRIES,
            "retry_timeout": timedelta(seconds=seconds if once else RETRY_SECONDS),
        },
        **{name: value for name, value in given.items() if value},
    )


_OF_STORE = re.compile(r"S3 error|AWS Error|Error performing (GET|PUT|POST|HEAD|DELETE|list)")
_WRAPPED = re.compile(r"\s*\x1b\[31m↳\x1b\[0m\s*|\s+")  # deltalake wraps long lines
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_OF_KEYS = {
    "InvalidAccessKeyId": "it does not know AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY does not belong to AWS_ACCESS_KEY_ID",
    "ExpiredToken": "AWS_SESSION_TOKEN has expired",
    "InvalidToken": "AWS_SESSION_TOKEN does not belong to this key",
    "AccessDenied": "the key may not read, write, list and delete there",
}


def describe_error(error: Exception) -> str | None:
    """Return a library's error from a store as one line; None for other errors."""
    return problem(None, error) if _OF_STORE.search(str(error)) else None


def problem(where: Address | None, error: Exception) -> str:
    """Return a store's answer and what to do as one line, without keys."""
    text = _WRAPPED.sub(" ", str(error))
    there = f"object store {where.name}, bucket {where.bucket}" if where else "object store"
    code = match[1] if (match := _CODE.search(text)) else None
    if code in _OF_KEYS:
        return f"{there}: it refused the key: {_OF_KEYS[code]}"
    if code == "NoSuchBucket":
        return f"{there}: it has no such bucket: create it, or set SHARDPOST_TABLES"
    if status := _STATUS.search(text):
        return f"{there}: it answered {code or status[1].strip()}"
    if "error sending request" in text or "curlCode" in text:
        return f"{there}: it does not answer: check that it is up and AWS_ENDPOINT_URL is right"
    return f"{there}: {first_line(error).partition(' <?xml')[0]}"


# So many writers at once, so often: a store that looks first and writes then lets several win.
_RACES, _WRITERS = 8, 8


def require_conditional_put(where: Address) -> None:
    """Refuse a store that lets several writers put one key: it loses commits silently.

    Some stand-ins for S3 (such as S3Mock) do.
    """
    objects = open_objects(where, "_probes")
    names = [f"{uuid.uuid4()}" for _ in range(_RACES)]
    attempts = [(name, f"{name} {number}".encode()) for name in names for number in range(_WRITERS)]
    try:
        with ThreadPoolExecutor(_WRITERS) as pool:
            won = [*pool.map(lambda one: objects.put_if_absent(*one), attempts)]
        objects.put_if_absent(names[0], b"another")
        first = [objects.get(name) for name in names]
    finally:
        with suppress(ShardpostError):
            objects.delete(names)
    contents = {one for one in first if one}
    winners = sum(won)
    if winners != len(names) or not contents <= {content for _, content in attempts}:
        raise ShardpostError(
            f"object store {where.name}: expected one winner for each of {len(names)} keys that "
            f"{_WRITERS} writers put with If-None-Match, found {winners}: it would lose commits "
            "silently; use a store with conditional puts (docs/tables.md#object-stores)"
        )
