"""Tokens of unsubscribe links: who can make one, which are genuine, and what a rotation leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpost.settings import Settings
from shardpost.unsubscribe import is_genuine, keys_of
from shardpost.watch.stack_checks import check_unsubscribe_link
from tests.support.installed import installed

OLD, NEW = "a-secret-of-16-characters", "another-secret-of-as-many"
LIST = "weekly-holdings"
# printf %s '15:weekly-holdings,7:client1,' | openssl dgst -sha256 -hmac "$OLD" -binary | base64
TOKEN = "1.FsSDBvDBzqBK_K2RQCXCQedqVFTe-NxpW21CTjIwP8k"  # noqa: S105 - of no mail


def test_a_token_is_the_hmac_of_list_and_client_behind_the_id_of_its_key() -> None:
    assert keys_of(OLD)[0].token(LIST, "client1") == TOKEN


@pytest.mark.parametrize(
    ("secrets", "is_known"),
    [(OLD, True), (f"1:{OLD}", True), (f"2:{NEW} 1:{OLD}", True), (f"1:{NEW}", False)],
)
def test_links_are_genuine_as_long_as_their_secret_is_kept(secrets: str, is_known: bool) -> None:
    assert is_genuine(TOKEN, "client1", list_id=LIST, secrets=secrets) is is_known
    for wrong in ("", TOKEN[:-1], f"{TOKEN}A", f"2{TOKEN[1:]}", TOKEN[2:], "1.é"):
        assert not is_genuine(wrong, "client1", list_id=LIST, secrets=secrets)


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_a_token_is_of_one_list_and_one_client(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    token = keys_of(OLD)[0].token(*one)
    assert is_genuine(token, other[1], list_id=other[0], secrets=OLD) is (one == other)


def test_no_pair_of_list_and_client_is_written_like_another() -> None:
    tokens = {keys_of(OLD)[0].token(*pair) for pair in (("a", "b"), ("ab", ""), ("a,1:b", ""))}
    assert len(tokens) == 3


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("https://bank.com/?c={client}", True),
        ("https://bank.com/?c={client}&t={token}", False),
        ("https://shardpost.example/?c={client}", False),
    ],
)
def test_the_doctor_warns_of_a_link_that_anybody_can_make(
    settings: Settings, url: str, warned: bool
) -> None:
    found = check_unsubscribe_link(installed(settings.model_copy(update={"unsubscribe_url": url})))
    assert [one.state for one in found] == ["warning"] * warned
