"""Types of settings, and the checks of their text, which raise ValueError.

And how a text file that people write is read: settings, declared topics, mail templates.
"""

import re
from datetime import date
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field

from shardpost.errors import UsageError
from shardpost.unsubscribe import keys_of
from shardpost.values.holding_rule import parsed
from shardpost.values.schedules import cron
from shardpost.values.topic_names import check_topic

DEFAULT_SENDER = "Shardpost <weekly@shardpost.example>"
LEAST_HEAP_BYTES = 512 << 20
# Settings of Kafka's clients that are no texts of librdkafka: the dotted path of a function that
# returns a token, and properties of Java's client, after `java.`.
OAUTH_CALLBACK = "oauth_cb"
JAVA_ONLY = ("java.sasl.", "java.ssl.")
PLACEHOLDERS = ("client", "week", "token")

_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_SERVER = re.compile(r"(?:[A-Z_]+://)?(\[[^\]]+\]|[^:/\s]+):(\d{1,5})")
_HEAP = re.compile(r"(\d+)([kmgt])")
_HEAP_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_WEEK = re.compile(r"([0-9]{4})-W([0-9]{2})")
_FILE = "file://"
STORE = "s3://"
_STORE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_.=-]+)*/?")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")  # a path has no two slashes in a row
_SCHEMED = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_CONNECTION = re.compile(
    r"(?a)(kafka|smtp|aws|spark)=([\w#!()\-.:/\\]+)"
)  # ids as Airflow has them


def read_text(path: Path, *, advice: str = "", default: str | None = None) -> str:
    """Return the text of a file, without the mark that some editors begin it with.

    `default`, if given, where there is no such file; UsageError if it cannot be read, with `advice`
    on what to do.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: expected text in UTF-8, found other bytes at byte {error.start}:"
            " save the file as UTF-8"
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path}: cannot be read: expected a file, found a folder") from None
    except OSError as error:
        if default is not None and isinstance(error, FileNotFoundError | NotADirectoryError):
            return default
        said = f"{path}: cannot be read: {error.strerror}"
        raise UsageError(f"{said}: {advice}" if advice else said) from None


def host(text: str) -> str:
    """Check a host name or an IP address, without a port."""
    try:
        ip_address(text)
    except ValueError:
        if not _HOST.fullmatch(text):
            raise ValueError("expected a host name or an IP address, and nothing else") from None
    return text


def alert_urls(text: str) -> str:
    """Check URLs of alert channels, separated by blanks; what they are is not shown."""
    for number, url in enumerate(text.split(), 1):
        if not _SCHEMED.match(url):
            raise ValueError(
                f"expected URLs of Apprise, separated by blanks: number {number} has no scheme"
            )
    return text


def servers(text: str) -> str:
    """Check bootstrap servers: `host:port`, comma-separated."""
    for server in text.split(","):
        match = _SERVER.fullmatch(server.strip())
        if not match or not 1 <= int(match[2]) <= 65535:
            raise ValueError(f"expected host:port, comma-separated, found {server.strip()!r}")
        host(match[1].strip("[]"))
    return text


def web_url(text: str) -> str:
    """Check an http or https URL."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or set(text) & set(" \r\n\t"):
        raise ValueError("expected a URL such as https://host:port")
    _require_plain_address(text)
    return text


def sender(text: str) -> str:
    """Check the sender of e-mails: `name <address>` or an address, in ASCII."""
    if text == DEFAULT_SENDER:  # the library that knows addresses takes a while to import
        return text
    from shardpost.values.addresses import mailbox

    mailbox(text)
    return text


def unsubscribe_url(text: str) -> str:
    """Check the URL at which each client unsubscribes: https (RFC 8058), with placeholders."""
    if not text.startswith("https://") or not text.isascii() or set(" <>\r\n\t") & set(text):
        raise ValueError("expected an https URL (RFC 8058)")
    for name in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            known = "{client}, {token} and {week}"
            raise ValueError(f"expected the placeholders {known}, found {{{name}}}")
    rest = _PLACEHOLDER.sub("", text)
    if set("{}") & set(rest):
        raise ValueError("expected a closing brace for each opening one")
    if "{client}" not in text:
        raise ValueError("expected the placeholder {client}, which identifies the client")
    parts = urlsplit(text)
    if not parts.hostname or "{" in parts.netloc:
        raise ValueError("expected a host name without a placeholder")
    _require_plain_address(text)
    return text


def unsubscribe_secrets(text: str) -> str:
    """Check the secrets of the tokens in unsubscribe links: `ID:SECRET`, separated by blanks."""
    keys_of(text)
    return text


def connection_ids(text: str) -> dict[str, str]:
    """Return {kind: id of its Airflow connection}, those that the text does not give, too."""
    given: dict[str, str] = {}
    for part in text.split():
        match = _CONNECTION.fullmatch(part)
        if not match or match[1] in given:
            raise ValueError(
                "expected kafka=ID, smtp=ID, aws=ID and spark=ID, each at most once, separated by"
                f" blanks, found {part!r}"
            )
        given[match[1]] = match[2]
    return {kind: given.get(kind, f"{kind}_default") for kind in ("kafka", "smtp", "aws", "spark")}


def heap(text: str) -> str:
    """Check the heap of a driver; less than Spark needs is refused here, and not by its JVM."""
    if not _HEAP.fullmatch(text):
        raise ValueError("expected a number and its unit k, m, g or t, such as 2g")
    if int(text[:-1]) * _HEAP_UNITS[text[-1]] < LEAST_HEAP_BYTES:
        raise ValueError("expected at least 512m")
    return text


def week(text: str) -> str:
    """Check an ISO week."""
    match = _WEEK.fullmatch(text)
    if not match:
        raise ValueError("expected an ISO week such as 2026-W47")
    try:
        date.fromisocalendar(int(match[1]), int(match[2]), 1)
    except ValueError:
        raise ValueError(f"there is no such week in {match[1]}") from None
    return text


def local_path(text: str) -> Path:
    """Return the path that a text or a file:// URL is; ValueError for a URL of another machine."""
    if not text.startswith(_FILE):
        return Path(text)
    path = unquote(text.removeprefix(_FILE))
    if not path.startswith("/"):
        raise ValueError("expected a file:// URL without a host, such as file:///data")
    return Path(path)


def located(text: str) -> str:
    """Return where the tables are: an absolute path, or the URL of a folder of a bucket."""
    if not text.startswith(STORE):
        return str(_absolute(local_path(text)))
    names = text.removeprefix(STORE).split("/")
    if not _STORE.fullmatch(text) or {".", ".."} & {*names}:
        raise ValueError(
            "expected s3://BUCKET/FOLDER, of a-z, 0-9, '.', '-' for the bucket and also A-Z, '_',"
            " '=' for the folder, without a login"
        )
    return text.rstrip("/")


def _is_no_folder(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # whoever opens it says what is wrong
        return False


def _require_plain_address(url: str) -> None:
    """Refuse a login, and an invalid port."""
    if "@" in urlsplit(url).netloc:
        raise ValueError("expected a URL without a login, which logs and pages would show")
    try:
        port = urlsplit(url).port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("expected a port from 1 to 65535")


def _like(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Days = Annotated[int, Field(ge=1, le=36_500)]
Seconds = Annotated[float, Field(gt=0, le=10**9)]
Host = Annotated[str, AfterValidator(host)]
Servers = Annotated[str, AfterValidator(servers)]
Topic = Annotated[str, AfterValidator(check_topic)]
Cron = Annotated[str, AfterValidator(cron)]
Url = Annotated[str, AfterValidator(web_url)]
Week = Annotated[str, AfterValidator(week)]
Trimmed = Annotated[str, _like(r"\S((?s:.*)\S)?", "a text without spaces before or after it")]
Condition = Annotated[str, AfterValidator(lambda text: str(parsed(text)))]
# The part of a List-Id before the domain.
ListId = Annotated[
    str,
    _like(
        r"(?=.{1,64}$)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*",
        "up to 64 of a-z, A-Z, 0-9, '_', '-', and single dots between",
    ),
]
# Whether there is such a language is known by Babel.
Language = Annotated[
    str,
    _like(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8}){0,3}", "a language such as de, pt-BR or zh-Hant"),
]
SparkMaster = Annotated[
    str,
    _like(
        r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn"
        r"|spark://[^\s:/]+:\d+(,[^\s:/]+:\d+)*|k8s://\S+",
        "local[*], local[4], spark://host:7077, yarn or k8s://…",
    ),
]
DagIds = Annotated[
    str, _like(r"(?a)\s*[\w.-]+\s*(,\s*[\w.-]+\s*)*", "ids of DAGs, comma-separated")
]
Connections = Annotated[
    str, AfterValidator(lambda text: " ".join(map("=".join, connection_ids(text).items())))
]
Located = Annotated[str, AfterValidator(lambda text: located(text))]
File = Annotated[Path, AfterValidator(lambda path: _path(path).expanduser().absolute())]
Absolute = Annotated[Path, AfterValidator(lambda path: _absolute(path))]


def _path(path: Path) -> Path:
    if _SCHEME.match(str(path)):
        raise ValueError(
            "expected a path of this machine, or for the tables also s3://BUCKET/FOLDER, found"
            " another URL: no test has run on a store behind one (gs://, abfss:// and others)"
        )
    return path


def _absolute(path: Path) -> Path:
    """Return the absolute path of a folder that is there, or that can be made there."""
    try:
        absolute = _path(path).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"expected a folder, found {path} for a user without a home") from None
    if "%" in str(absolute):  # deltalake decodes it as an escape, as in a URL
        raise ValueError(f"expected a path without '%', found {absolute}")
    for part in (absolute, *absolute.parents):
        if _is_no_folder(part):
            raise ValueError(f"expected a folder, found {part}, which is not one")
    return absolute
