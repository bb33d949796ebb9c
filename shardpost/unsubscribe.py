"""Public: the tokens of unsubscribe links, for the server of the page that they open.

    from shardpost.unsubscribe import is_genuine

    is_genuine(token, client, list_id="weekly-holdings", secrets="2:… 1:…")

A token is `<key id>.<base64url of HMAC-SHA256>`, without padding. The HMAC is over list id and
client as netstrings, `15:weekly-holdings,7:client1,` (sizes in bytes of UTF-8): no two pairs have
the same. So a link proves that it was sent to the client, and nobody makes one for another client.
"""

import hmac
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from functools import lru_cache

LEAST_SECRET = 16
# Of a secret that is given without one.
FIRST_ID = "1"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Key:
    """A secret with the id by which tokens name it."""

    id: str
    secret: bytes = field(repr=False)

    def token(self, list_id: str, client: str) -> str:
        """Return the token of a client of a list; the same for ever."""
        text = _netstring(list_id) + _netstring(client)
        digest = hmac.digest(self.secret, text, "sha256")
        return f"{self.id}.{urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _netstring(text: str) -> bytes:
    encoded = text.encode(errors="surrogatepass")
    return b"%d:%b," % (len(encoded), encoded)


@lru_cache(maxsize=8)
def keys_of(secrets: str) -> tuple[Key, ...]:
    """Return the keys of `ID:SECRET …`, separated by blanks; the one that signs is first.

    ValueError, which shows no secret, for one that is too short, and for ids that are none or not
    different. A secret without an id has FIRST_ID.
    """
    keys = []
    for number, word in enumerate(secrets.split(), 1):
        key_id, colon, secret = word.rpartition(":")
        if colon and not _ID.fullmatch(key_id):
            raise ValueError(f"number {number}: expected ID:SECRET, the id of a-z, 0-9, '_', '-'")
        if len(secret) < LEAST_SECRET:
            raise ValueError(
                f"number {number}: expected a secret of at least {LEAST_SECRET} characters:"
                " `openssl rand -hex 32` makes one"
            )
        keys.append(Key(key_id or FIRST_ID, secret.encode(errors="surrogateescape")))
    if not keys:
        raise ValueError("expected ID:SECRET, found none")
    if len({key.id for key in keys}) < len(keys):
        raise ValueError("expected ID:SECRET, each with a different id")
    return tuple(keys)


def is_genuine(token: str, client: str, *, list_id: str, secrets: str) -> bool:
    """Tell whether a link with that token was made for the client, by any of the secrets.

    `secrets` is the text of SHARDPOST_UNSUBSCRIBE_SECRET, `list_id` that of SHARDPOST_MAIL_LIST_ID;
    ValueError for secrets that are none. Compares in constant time.
    """
    given = token.encode(errors="replace")
    # Each is compared, so that the time does not tell which key it is.
    found = [
        hmac.compare_digest(key.token(list_id, client).encode(), given) for key in keys_of(secrets)
    ]
    return any(found)
