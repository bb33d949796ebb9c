"""The e-mail itself, read back with Python's own parser."""

import email
import email.policy
import re
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from html import unescape
from typing import Any

import pytest

from shardpost.errors import UsageError
from shardpost.settings import Settings
from shardpost.unsubscribe import is_genuine
from shardpost.values.addresses import Address, UnusableAddress, check_address
from shardpost.weekly_email.model.email_context import ComposeError, EmailContext
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.mail_templates import MailTemplates
from shardpost.weekly_email.model.message import Mail, draft, held_values, message_id
from shardpost.weekly_email.model.recipient import Member, NotMailed, Recipient, recipient_of
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.smtp_server import SenderSettings

NAMES = ("position", "ticker", "amount", "exchange")
WEEK = IsoWeek(2026, 47)
DATE = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
URL = "https://shardpost.example/unsubscribe?client={client}&week={week}"


def held(*positions: tuple[str | None, ...]) -> list[dict[str, str | None]]:
    return [dict(zip(NAMES, position, strict=True)) for position in positions]


def context(week: IsoWeek = WEEK, **more: Any) -> EmailContext:
    given = {
        "mail_from": "Shardpost <weekly@shardpost.example>",
        "unsubscribe_url": URL,
        "mail_list_id": "weekly-holdings",
        "unsubscribe_secret": None,
    }
    return EmailContext(week, week.end, "US", SenderSettings(**(given | more)).shown())


def mail(name: str = "Ann", client: str = "client1", *, to: str = "ann@x.example") -> Mail:
    return draft(context(), *compose_input(name, client, to)).mail()


def compose_input(
    name: str = "Ann", client: str = "client1", to: str = "ann@x.example"
) -> tuple[Recipient, list[dict[str, str | None]], datetime]:
    address = check_address(to)
    assert isinstance(address, Address)
    positions = held(("1", "AAPL", "100", "NASDAQ"), ("3", "FB", "33", "NASDAQ"))
    return Recipient(client, name, address), positions, DATE


def signed(secrets: str, client: str = "client1") -> Mail:
    url = "https://shardpost.example/unsubscribe?client={client}&token={token}"
    signing = context(unsubscribe_url=url, unsubscribe_secret=secrets)
    return draft(signing, *compose_input(client=client)).mail()


def parsed(found: Mail) -> EmailMessage:
    message = email.message_from_bytes(found.content, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    assert not message.defects
    return message


def text_of(found: Mail, kind: str) -> str:
    body = parsed(found).get_body((kind,))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def rows_of(html: str) -> list[list[str]]:
    """Return the cells of all rows that have four."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", row) for row in rows]
    return [[unescape(cell) for cell in row] for row in cells if len(row) == 4]


def test_the_same_input_makes_the_same_bytes() -> None:
    assert mail() == mail()


def test_the_headers_that_a_mailing_list_owes_are_there() -> None:
    message = parsed(mail(client="a b/é"))
    assert message["From"] == "Shardpost <weekly@shardpost.example>"
    assert message["To"] == "Ann <ann@x.example>"
    assert message["Subject"] == "Your US stock in week 2026-W47: 2 positions"
    assert message["Date"].datetime == DATE
    assert message["Message-ID"] == mail(client="a b/é").message_id
    assert message["List-Id"] == "<weekly-holdings.shardpost.example>"
    url = "https://shardpost.example/unsubscribe?client=a%20b%2F%C3%A9&week=2026-W47"
    assert message["List-Unsubscribe"] == f"<{url}>"
    assert message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"


def test_responders_are_told_that_nobody_reads_what_they_send() -> None:
    message = parsed(mail())
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Precedence"] == "bulk"


def test_two_lists_of_one_domain_have_their_own_ids() -> None:
    us, gb = context(), context(mail_list_id="weekly-holdings-gb")
    assert us.domain == gb.domain
    assert message_id(us, "client1") != message_id(gb, "client1")
    found = parsed(draft(gb, *compose_input()).mail())
    assert found["List-Id"] == "<weekly-holdings-gb.shardpost.example>"
    assert found["Message-ID"] == message_id(gb, "client1")


def test_the_message_id_depends_on_list_week_client_and_domain() -> None:
    contexts = [
        context(week, mail_list_id=list_id, mail_from=f"weekly@{domain}")
        for week in (WEEK, WEEK.next)
        for list_id in ("weekly-holdings", "weekly-holdings-gb")
        for domain in ("x.example", "y.example")
    ]
    ids = {message_id(one, client) for one in contexts for client in ("client1", "client2")}
    assert len(ids) == 16


def test_the_message_id_of_the_default_list_is_that_of_earlier_versions() -> None:
    default = context(
        mail_list_id=Settings.model_validate({}).mail_list_id, mail_from="a@x.example"
    )
    assert message_id(default, "client1") == "<aef38a9ad75f3a413b0f9b1d1659bd55630a0290@x.example>"


def test_text_and_html_tell_the_same_positions_and_no_sum_of_different_stocks() -> None:
    found = mail()
    assert parsed(found).get_content_type() == "multipart/alternative"
    text, html = text_of(found, "plain"), text_of(found, "html")
    assert "1         AAPL       100  NASDAQ\n3         FB          33  NASDAQ" in text
    assert rows_of(html)[1:] == [["1", "AAPL", "100", "NASDAQ"], ["3", "FB", "33", "NASDAQ"]]
    assert "133" not in text + html
    assert "Totals" not in text + html
    assert "33  NASDAQ\n\nYou receive" in text


def test_of_a_stock_with_several_positions_the_totals_by_stock_are_told() -> None:
    recipient, _, date = compose_input()
    rows = [("1", "AAPL", "100", "NASDAQ"), ("3", "FB", "33", "NASDAQ")]
    more = [("7", "AAPL", "0.5", "NASDAQ"), ("9", "AAPL", "1", "IEX"), ("11", None, "5", "IEX")]
    found = draft(context(), recipient, held(*rows, *more, ("12", None, "6", "IEX")), date).mail()
    text, html = text_of(found, "plain"), text_of(found, "html")
    [_, totals] = text.split("Totals by stock:\n\n")
    assert totals.split("\n\n")[0].splitlines() == [
        "Ticker  Exchange  Positions        Amount",
        "        IEX               2  not added up",
        "AAPL    IEX               1             1",
        "AAPL    NASDAQ            2         100.5",
        "FB      NASDAQ            1            33",
    ]
    assert ["AAPL", "NASDAQ", "2", "100.5"] in rows_of(html)


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\x00", "\u2028", "\x85", "\x0b", "\u202e"])
def test_no_name_can_add_a_header_or_a_line(end: str) -> None:
    evil = f"Ann{end}Bcc: evil@x.example{end}{end}body"
    message = parsed(mail(evil))
    assert "Bcc" not in message
    assert "Bcc: evil@x.example" in message["To"].addresses[0].display_name
    assert "Hello Ann Bcc: evil@x.example" in text_of(mail(evil), "plain")


@pytest.mark.parametrize(
    "name", ['Ann "A" <x@y>, B', "Jörg Müller", "=?utf-8?q?x?=", "日本" * 30, "a, b; c"]
)
def test_any_name_reads_back(name: str) -> None:
    found = parsed(mail(name))["To"].addresses
    assert [address.addr_spec for address in found] == ["ann@x.example"]
    assert found[0].display_name.replace(" ", "") == name.replace(" ", "")


@pytest.mark.parametrize("name", ["", "Ann", "Jörg"])
def test_an_address_beyond_ascii_stands_in_the_header_as_it_is(name: str) -> None:
    found = mail(name, to="jörg@x.example")
    assert found.needs_utf8
    assert "jörg@x.example".encode() in found.content


def test_no_line_is_longer_than_mail_allows_and_all_end_with_crlf() -> None:
    made = draft(
        context(),
        Recipient("c", "n" * 5000, Address("ann@x.example", needs_utf8=False)),
        held(("p" * 5000, "t" * 5000, "9" * 5000, "e" * 5000)),
        DATE,
    )
    content = made.mail().content
    assert max(map(len, content.split(b"\r\n"))) <= 998
    assert b"\n" not in content.replace(b"\r\n", b"")
    assert b"\r" not in content.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    ("mail_from", "name"),
    [
        ("news@bank.com", ""),
        ("<news@bank.com>", ""),
        ('"Doe, \\"J\\" \\\\ <x@y.com>" <news@bank.com>', 'Doe, "J" \\ <x@y.com>'),
        ("Bank (UK) & O'Brien Co. <news@bank.com>", "Bank (UK) & O'Brien Co."),
        ("Jörg <news@bank.com>", "Jörg"),
    ],
)
def test_a_sender_is_one_address_and_may_have_a_name(mail_from: str, name: str) -> None:
    sender = context(mail_from=mail_from).sender
    assert (sender.name, sender.address) == (name, "news@bank.com")


@pytest.mark.parametrize(
    "text",
    ["x" * 200, "x" * 200 + "\n", "\r\n" + "x" * 200, "é" * 100 + "\rb\n.c\r\n.", "a\n\n b \n"],
)
def test_each_line_of_a_body_ends_with_crlf_whatever_the_template_ends_with(text: str) -> None:
    templates = MailTemplates(
        tuple((name, text) for name in ("weekly_email.html", "weekly_email.txt"))
    )
    found = draft(replace(context(), templates=templates), *compose_input("Jörg " * 20)).mail()
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", found.content)
    assert found.content.endswith(b"--\r\n")
    expected = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    assert text_of(found, "plain").strip("\n") == expected


def test_a_client_whose_link_would_be_too_long_cannot_be_written_to() -> None:
    with pytest.raises(ComposeError, match="at most 998"):
        mail(client="c" * 2000)


def test_html_of_a_ticker_stays_text() -> None:
    recipient, _, date = compose_input()
    again = held(*[("<b>", "&", "1", "X<script>")] * 2)
    html = text_of(draft(context(), recipient, again, date).mail(), "html")
    assert "&lt;b&gt;" in html
    assert "<script>" not in html
    assert rows_of(html)[1] == ["<b>", "&", "1", "X<script>"]
    assert rows_of(html)[-1] == ["&", "X<script>", "2", "2"]


@pytest.mark.parametrize(
    ("amounts", "total"),
    [
        (["100", "33"], "133"),
        (["0.1", "0.2"], "0.3"),
        (["1E+2", "5"], "105"),
        (["1e400", "1"], "not added up"),
        (["1e-400", "1"], "not added up"),
        (["9" * 5000], "not added up"),
        (["NaN"], "not added up"),
        (["1e999999999999999999999"], "not added up"),
        ([None], "not added up"),
        (["-5", "5"], "0"),
        (["123456789012345678901234567890", "1"], "123456789012345678901234567891"),
    ],
)
def test_amounts_are_added_up_exactly_or_not_at_all(amounts: list[str | None], total: str) -> None:
    table = held(*((str(i), "T", amount, "NYSE") for i, amount in enumerate(amounts)))
    text = held_values(table)["text_totals"]
    assert text.splitlines()[1].split("  ")[-1].strip() == total


def test_a_client_without_positions_has_tables_of_headings_alone() -> None:
    found = held_values([])
    assert (found["count"], found["stocks"], found["positions"]) == (0, 0, [])
    assert found["text_table"] == "Position  Ticker  Amount  Exchange"


@pytest.mark.parametrize(
    "mail_from",
    ["nobody", "a@b@c", "jörg@x.example", "a@b.example <c@d.example>", "a@b.example, c@d.example"],
)
def test_a_sender_that_no_mail_can_be_from_is_refused_by_name(mail_from: str) -> None:
    with pytest.raises(UsageError, match="SHARDPOST_MAIL_FROM"):
        context(mail_from=mail_from)


def test_usable_addresses_and_those_beyond_ascii() -> None:
    for text in ("a@x.example", "a@x.test", "a@localhost", "a+b@example.com", "a@example"):
        assert check_address(text) == Address(text, needs_utf8=False)
    assert check_address("a@exämple.com") == Address("a@xn--exmple-cua.com", needs_utf8=False)
    assert check_address("jörg@x.example") == Address("jörg@x.example", needs_utf8=True)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " ",
        "a",
        "a@",
        "@b.c",
        "a b@x.example",
        "a@x.example\r\nBcc: b@c.example",
        "<a@x.example>",
    ],
)
def test_unusable_addresses_have_a_reason(text: str | None) -> None:
    found = check_address(text)
    assert isinstance(found, UnusableAddress)
    assert found.reason


@pytest.mark.parametrize(
    ("member", "state"),
    [
        (
            Member("c", "n", "a@x.example", has_contact=True, subscribed=False),
            DeliveryState.SUPPRESSED,
        ),
        (Member("c", "n", "bad", has_contact=True, subscribed=False), DeliveryState.SUPPRESSED),
        (Member("c", None, None, has_contact=False, subscribed=None), DeliveryState.FAILED),
        (Member("c", "n", "bad", has_contact=True, subscribed=True), DeliveryState.FAILED),
        (Member("c", "n", None, has_contact=True, subscribed=True), DeliveryState.FAILED),
        (
            Member("c", "n", "a@x.example", has_contact=True, subscribed=None),
            DeliveryState.SUPPRESSED,
        ),
    ],
)
def test_who_is_not_mailed_has_a_state_and_a_reason(member: Member, state: DeliveryState) -> None:
    found = recipient_of(member)
    assert isinstance(found, NotMailed)
    assert found.state is state
    assert found.reason


def test_a_signed_link_is_the_same_in_each_copy_and_changes_nothing_else() -> None:
    first, again = signed("1:a-secret-of-16-characters"), signed("1:a-secret-of-16-characters")
    rotated = signed("2:another-secret-of-as-many 1:a-secret-of-16-characters")
    assert first == again
    assert first.message_id == rotated.message_id == mail().message_id
    url = parsed(first)["List-Unsubscribe"]
    assert "?client=client1&token=1." in url
    assert "?client=client1&token=2." in parsed(rotated)["List-Unsubscribe"]
    token = url.rpartition("token=")[2].strip("<>")
    secrets = "1:a-secret-of-16-characters"
    assert is_genuine(token, "client1", list_id="weekly-holdings", secrets=secrets)
    assert token not in parsed(signed(secrets, "client2"))["List-Unsubscribe"]
