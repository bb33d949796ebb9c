"""The look of the mail: own templates, languages, styles, and what is refused before a send."""

import email
import email.policy
import re
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shardpost.errors import UsageError
from shardpost.settings import Settings, load
from shardpost.values.addresses import Address
from shardpost.weekly_email.model.email_context import ComposeError, EmailContext, Sender
from shardpost.weekly_email.model.mail_rendering import TemplateError
from shardpost.weekly_email.model.mail_templates import (
    SHIPPED,
    MailTemplates,
    known_language,
    number_text,
)
from shardpost.weekly_email.model.message import draft
from shardpost.weekly_email.model.recipient import Recipient
from shardpost.weekly_email.model.week import IsoWeek
from shardpost.weekly_email.own_templates import TemplateSettings, templates_of, write_shipped
from tests.support.installed import installed

WEEK = IsoWeek(2026, 47)
DATE = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
URL = "https://shardpost.example/unsubscribe?client={client}"
SENDER = Sender("Shardpost", "weekly@shardpost.example", URL, "weekly-holdings")
HOSTILE = '"><script>alert(1)</script>\r\nBcc: x@x.example\u202e{{ 7*7 }}'


def mail(
    templates: MailTemplates | None = None,
    *,
    language: str | None = None,
    client: str = "client1",
    name: str = "Ann",
    positions: int = 2,
    amount: str = "1234.50",
    as_of: datetime = WEEK.end,
) -> EmailMessage:
    """Return one mail, read back by Python's own parser."""
    templates = templates or MailTemplates()
    row = {"ticker": "AAPL", "amount": amount, "exchange": "NASDAQ"}
    held = [{"position": str(number), **row} for number in range(positions)]
    to = Recipient(client, name, Address("ann@x.example", needs_utf8=False), language)
    made = draft(EmailContext(WEEK, as_of, "US", SENDER, templates), to, held, DATE).mail()
    message = email.message_from_bytes(made.content, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    assert not message.defects
    return message


def body(message: EmailMessage, kind: str) -> str:
    part = message.get_body((kind,))
    assert part is not None
    return str(part.get_content()).replace("\r\n", "\n")


def own(folder: Path, language: str | None = None, **files: str) -> MailTemplates:
    """Return the templates of a folder with those files; `subject_de` is `subject.de.txt`."""
    for name, text in files.items():
        (folder / file_name(name)).write_text(text)
    return templates_of(installed(set_to(folder, language)).values(TemplateSettings))


def file_name(name: str) -> str:
    stem, _, rest = name.partition("__")
    kind = "html" if rest.endswith("html") else "txt"
    tag = rest.removesuffix("html").strip("_")
    return f"{stem}.{tag}.{kind}" if tag else f"{stem}.{kind}"


def set_to(folder: Path, language: str | None = None) -> Settings:
    return Settings.model_validate({"mail_templates": str(folder), "mail_language": language})


class Tags(HTMLParser):
    """The tags of a document, each with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_each_part_is_a_template_and_what_is_missing_is_the_shipped_one(tmp_path: Path) -> None:
    plain = mail()
    templates = own(
        tmp_path,
        subject="{{ count }} of yours in {{ week }}\n",
        from_name="The bank, {{ sender_name }}",
        reply_to="Help <help@bank.example>, desk@bank.example",
        footer="Bye, {{ client }}.\n",
    )
    found = mail(templates)
    assert found["Subject"] == "2 of yours in 2026-W47"
    assert found["From"] == '"The bank, Shardpost" <weekly@shardpost.example>'
    assert found["Reply-To"] == "Help <help@bank.example>, desk@bank.example"
    assert body(found, "plain").endswith("Bye, client1.\n")
    assert "<title>2 of yours in 2026-W47</title>" in body(found, "html")
    assert "Unsubscribe" in body(found, "html")
    assert found["Message-ID"] == plain["Message-ID"]
    assert "Reply-To" not in plain
    assert mail(templates).as_bytes() == found.as_bytes()


def test_the_shipped_templates_are_written_as_an_example_and_nothing_is_overwritten(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "look"
    assert {path.name for path in write_shipped(folder)} == set(SHIPPED)
    assert (
        mail(templates_of(installed(set_to(folder)).values(TemplateSettings))).as_bytes()
        == mail().as_bytes()
    )
    with pytest.raises(UsageError, match=r"subject\.txt.*not overwritten"):
        write_shipped(folder)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("subject", "a\n\n{{ nmae }}", r"subject\.txt, line 3: expected one of .*found nmae"),
        ("subject", "{{ subject }}", "found subject"),
        ("weekly_email", "x\n{% if more_positions %}{{ typo }}{% endif %}", "line 2.*typo"),
        ("weekly_email__html", "<html>\n{% for x in %}", r"weekly_email\.html, line 2"),
        ("footer__html", "<p>\n\n{{ sender.name }}", r"footer\.html, line 3"),
        ("weekly_email", "a\n{{ positions[9].ticker }}", r"weekly_email\.txt, line 2"),
        ("weekly_email", "{{ ''.__class__ }}", "line 1.*unsafe"),
        ("weekly_email", "{{ ''.__class__.__mro__[1].__subclasses__() }}", "line 1"),
        ("subject", "{{ '{0.__class__.__init__.__globals__}'.format(name) }}", "line 1.*unsafe"),
        ("weekly_email", "{{ cycler.__init__.__globals__ }}", "line 1.*unsafe"),
        ("weekly_email", "{{ positions.append(1) }}", "line 1.*unsafe"),
        ("weekly_email", "{{ range(10 ** 9) | list }}", "line 1.*[Rr]ange too big"),
        ("weekly_email", "{% include 'other.txt' %}", r"other\.txt"),
        ("weekly_email", "{{ name | random }}", "random"),
        ("weekly_email__html", '<html><body>\n<img src="a.png">', 'line 2.*alt="'),
        ("weekly_email__html", '<link rel="stylesheet" href="a.css">', "styles in <style>"),
        ("weekly_email__html", "<script>x</script>", "no <script>"),
        ("never_used", "\n{{ nmae }}", r"never_used\.txt, line 2: .*found nmae"),
        ("never_used__html", "<script>x</script>", r"never_used\.html, line 1: .*no <script>"),
        ("never_used", "{% include 'other.txt' %}", r"never_used\.txt, line 1: no .*other\.txt"),
        ("subject", " \n", "expected some text, found none"),
        ("reply_to", "nobody", "Reply-To 'nobody'"),
        ("reply_to", "a@b.example <c@d.example>", "Reply-To 'a@b.example <c@d.example>'"),
        ("footer", "{% include 'footer.txt' %}", r"footer\.txt, line 1: .*includes"),
    ],
)
def test_a_template_that_no_mail_can_be_written_with_is_refused_before_a_send(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        own(tmp_path, **{name: text})
    assert str(tmp_path) in str(raised.value) or "Reply-To" in said
    assert "\n" not in str(raised.value)


def test_a_folder_and_names_that_are_wrong_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"SHARDPOST_MAIL_TEMPLATES.*templates init"):
        templates_of(installed(set_to(tmp_path / "none")).values(TemplateSettings))
    for name, said in (
        ("weekly_emial.html", r"did you mean weekly_email\.html"),
        ("Subject.TXT", r"did you mean subject\.txt"),
        ("footer.en.GB.html", r"did you mean footer\.html"),
        ("subject.zz.txt", "expected a language.*found zz"),
        ("footer.txt", "UTF-8"),
    ):
        path = tmp_path / name
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(UsageError, match=said):
            templates_of(installed(set_to(tmp_path)).values(TemplateSettings))
        path.unlink()
    (tmp_path / "notes.md").write_text("{{ anything }}")
    assert templates_of(installed(set_to(tmp_path)).values(TemplateSettings)).files == ()
    with pytest.raises(UsageError, match="SHARDPOST_MAIL_LANGUAGE='zz'"):
        templates_of(installed(set_to(tmp_path, "zz")).values(TemplateSettings))
    with pytest.raises(UsageError, match="SHARDPOST_MAIL_LANGUAGE"):
        load({"SHARDPOST_MAIL_LANGUAGE": "../../etc"})


def test_what_goes_wrong_with_a_client_names_the_line_and_is_not_the_clients_fault(
    tmp_path: Path,
) -> None:
    templates = own(tmp_path, weekly_email__html="<p>\n{{ 1 // (count - 3) }}</p>")
    mail(templates)
    with pytest.raises(TemplateError, match=r"weekly_email\.html, line 2: .*zero"):
        mail(templates, positions=3)
    assert not issubclass(TemplateError, ComposeError)


def test_hostile_ids_and_names_stay_text_in_html_and_in_headers(tmp_path: Path) -> None:
    templates = own(
        tmp_path,
        subject="For {{ client }} {{ name }}",
        from_name="{{ name }}",
        footer__html='<p title="{{ client }}">{{ client }} {{ name }}</p>',
    )
    found = mail(templates, client=HOSTILE, name=HOSTILE)
    assert found.keys() == mail().keys()
    html = body(found, "html")
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "49" not in html
    titles = [attributes["title"] for tag, attributes in Tags(html).found if "title" in attributes]
    assert titles == ['"><script>alert(1)</script> Bcc: x@x.example {{ 7*7 }}']
    for header in ("Subject", "From"):
        assert "Bcc: x@x.example" in str(found[header])
        assert "\u202e" not in str(found[header])


def test_a_reply_to_that_a_client_spoils_fails_that_client_alone(tmp_path: Path) -> None:
    templates = own(tmp_path, reply_to="desk+{{ client | replace('\"', '') }}@bank.example")
    assert mail(templates, client="c1")["Reply-To"] == "desk+c1@bank.example"
    with pytest.raises(ComposeError, match="Reply-To"):
        mail(templates, client="c@@@1 <")


def test_a_clients_language_chooses_templates_numbers_and_dates(tmp_path: Path) -> None:
    templates = own(
        tmp_path,
        subject__de="{{ count | number }} Positionen, {{ last_day | day }}",
        footer__de="{{ 1234.5 | format_decimal }} {{ 0.25 | format_percent }}"
        " {{ last_day | format_date('long') }} {{ held_at | format_datetime('short') }}\n",
        footer__pt_BR="Tchau\n",
    )
    german = mail(templates, language="de-AT", positions=1)
    assert german["Subject"] == "1 Positionen, Sonntag, 22. November 2026"
    assert "1.234,50" in body(german, "plain")
    footer = body(german, "plain").splitlines()[-1]
    assert footer == "1.234,5 25\xa0% 22. November 2026 23.11.26, 00:00"
    assert '<html lang="de-AT">' in body(german, "html")
    assert "1.234,50" in body(mail(templates, language="de"), "html")
    assert body(mail(templates, language="pt-BR"), "plain").endswith("Tchau\n")
    plain = mail(templates)
    for unknown in ("fr", "xx", "de_DE_too_long_by_far", "../de", "", "5", "en\n"):
        assert mail(templates, language=unknown).as_bytes() == plain.as_bytes()
    assert "1234.50" in body(plain, "plain")


def test_the_setting_is_the_language_of_who_has_none(tmp_path: Path) -> None:
    british = own(tmp_path, "en-GB")
    text = body(mail(british), "plain")
    assert "1,234.50" in text
    assert "(Sunday, 22 November 2026, 24:00 UTC)" in text
    early = body(mail(british, as_of=WEEK.end - timedelta(hours=1)), "plain")
    assert "as of Sunday, 22 November 2026 23:00 UTC," in early
    assert "1,234.50" in body(mail(british, language="de"), "plain")
    assert "Sunday, November 22, 2026" in body(mail(british, language="en-US"), "plain")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("1234567.123456789", "1.234.567,123456789"),
        ("-1000", "-1.000"),
        ("1.50", "1,50"),
        ("0", "0"),
        ("1E+400", "1E+400"),
        ("not added up", "not added up"),
        ("", ""),
        ("٣", "٣"),
        ("9" * 60, ".".join(["999"] * 20)),
        ("9" * 61, "9" * 61),
    ],
)
def test_numbers_keep_all_their_digits(number: str, text: str) -> None:
    assert number_text(number, "de") == text


def test_a_language_is_that_of_babel_or_none() -> None:
    given = ("de", "DE", "de-AT", "de_at", "pt-br", "zh-TW", "iw", "de-XX", "zz", "e", "de-")
    known = ["de", "de", "de_AT", "de_AT", "pt_BR", "zh_Hant_TW", "he", "de", None, None, None]
    assert [known_language(text) for text in given] == known


@pytest.mark.parametrize(
    ("of_file", "of_client"),
    [
        ("zh-TW", "zh-TW"),
        ("zh-HK", "zh_Hant_HK"),
        ("zh-Hant", "zh-TW"),
        ("zh", "zh-TW"),
        ("sr-RS", "sr-RS"),
        ("sr", "sr-Cyrl-RS"),
        ("az-AZ", "az-Latn-AZ"),
        ("pt-br", "pt-BR"),
        ("DE", "de-AT"),
        ("en-gb", "en-GB"),
        ("iw", "he-IL"),
        ("he", "iw"),
    ],
)
def test_a_file_is_for_the_clients_of_its_language_however_either_is_written(
    tmp_path: Path, of_file: str, of_client: str
) -> None:
    (tmp_path / f"subject.{of_file}.txt").write_text("{% include 'x.txt' %}")
    (tmp_path / f"x.{of_file.replace('-', '_').upper()}.txt").write_text("of {{ language }}")
    found = mail(
        templates_of(installed(set_to(tmp_path)).values(TemplateSettings)), language=of_client
    )
    assert found["Subject"] == f"of {known_language(of_client)}".replace("_", "-")


def test_a_client_of_a_region_that_no_file_is_in_gets_the_language_of_the_others(
    tmp_path: Path,
) -> None:
    templates = own(tmp_path, subject__de_AT="Servus {{ 1234 | number }}")
    assert mail(templates, language="de-AT")["Subject"].startswith("Servus")
    assert mail(templates, language="de").as_bytes() == mail(templates).as_bytes()


def test_two_files_that_mean_the_same_language_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("footer.zh-TW.html", "footer.zh_Hant_TW.html"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=r"footer\.zh_Hant_TW\.html: .*footer\.zh-TW\.html"):
        templates_of(installed(set_to(tmp_path)).values(TemplateSettings))


def test_styles_are_on_the_elements_and_those_of_the_dark_are_left(tmp_path: Path) -> None:
    templates = own(
        tmp_path,
        weekly_email__html="""<!DOCTYPE html>
<html><head><style>td { color: #123456 } .big { font-size: 20px }
@media (prefers-color-scheme: dark) { td { color: #fff !important } }</style></head>
<body><p class="big">{{ name }} {{ "a" if 2 > 1 }}</p><table>
{% for one in positions %}<tr><td>{{ one.ticker }}</td></tr>{% else %}<tr><td>-</td></tr>
{% endfor %}</table><a href="{{ unsubscribe }}" {% if name %}rel="x"{% endif %}>off</a>
<img src="https://bank.example/logo.png" alt="Bank">{# none sees this #}</body></html>""",
    )
    html = body(mail(templates), "html")
    assert html.count('<td style="color:#123456">AAPL</td>') == 2
    assert '<p class="big" style="font-size:20px">Ann a</p>' in html
    assert "@media (prefers-color-scheme: dark) { td { color: #fff !important } }" in html
    assert ".big" not in html
    assert "jinja" not in html
    link = next(attributes for tag, attributes in Tags(html).found if tag == "a")
    assert link == {"href": "https://shardpost.example/unsubscribe?client=client1", "rel": "x"}


# Each way by which a template can have another in it; the other is x.txt.
INCLUDES = (
    "{% include 'x.txt' %}",
    "{% include 'x.txt' with context %}",
    "{% include 'x.txt' ignore missing %}",
    "{% include ['none.txt', 'x.txt'] %}",
    "{% set which = 'x.txt' %}{% include which %}",
    "{% import 'x.txt' as x with context %}{{ x }}",
)
IMPORTS = (
    "{% from 'x.txt' import put %}{{ put(client) }}",
    "{% import 'x.txt' as x %}{{ x.put(client) }}",
    "{% set which = 'x.txt' %}{% import which as x with context %}{{ x.put(client) }}",
)
MACRO = "{% macro put(text) %}<b class='big'>{{ text }}</b>{% endmacro %}"


@pytest.mark.parametrize("form", INCLUDES)
def test_an_included_file_has_the_values_of_each_mail_and_never_anothers(
    tmp_path: Path, form: str
) -> None:
    templates = own(tmp_path, from_name=form, reply_to=form, x="{{ client }}@bank.example")
    for language in (None, "de", None):
        for client in ("c1", "c2"):
            found = mail(templates, client=client, language=language)
            assert found["From"].addresses[0].display_name == f"{client}@bank.example"
            assert found["Reply-To"] == f"{client}@bank.example"


@pytest.mark.parametrize(
    "text",
    [
        "{% from 'x.txt' import seen, note %}{{ note(client) }}{{ seen.of }}",
        "{% include 'x.txt' without context %}{{ client }}",
        "{% import 'x.txt' as x %}{{ x.note(client) }}{{ x.seen.of }}",
        "{% import 'x.txt' as x %}{{ x.turn.next() }}{{ client }}",
    ],
)
def test_nothing_of_an_imported_file_goes_from_mail_to_mail(tmp_path: Path, text: str) -> None:
    kept = (
        "{% set seen = namespace(of='') %}{% set turn = cycler('', 'again') %}"
        "{% macro note(one) %}{% set seen.of = seen.of ~ one %}{% endmacro %}"
    )
    templates = own(tmp_path, subject=text, x=kept)
    assert [mail(templates, client=one)["Subject"] for one in ("c1", "c2")] == ["c1", "c2"]


@pytest.mark.parametrize("form", INCLUDES)
def test_what_goes_into_html_is_escaped_there_whatever_file_prints_it(
    tmp_path: Path, form: str
) -> None:
    evil = '<a href="https://evil.example">click</a>'
    html = f"<p>{form}</p>"
    templates = own(tmp_path, weekly_email__html=html, subject=form, x="{{ client }}")
    found = mail(templates, client=evil)
    assert "<p>&lt;a href=&#34;https://evil.example&#34;&gt;click&lt;/a&gt;</p>" in body(
        found, "html"
    )
    assert found["Subject"] == evil


@pytest.mark.parametrize("form", IMPORTS)
def test_what_a_macro_prints_is_escaped_and_styled_in_html(tmp_path: Path, form: str) -> None:
    html = "<style>.big { font-size: 20px }</style><p>" + form + "</p>"
    templates = own(tmp_path, weekly_email__html=html, x=MACRO)
    found = body(mail(templates, client="<i>"), "html")
    assert '<b class="big" style="font-size:20px">&lt;i&gt;</b>' in found


@pytest.mark.parametrize("form", INCLUDES)
def test_elements_of_included_files_have_their_styles(tmp_path: Path, form: str) -> None:
    html = "<style>p .{{ 'big' }} { font-size: 20px }</style><p>" + form + "</p>"
    chosen = "<b class=\"{{ 'big' if count else 'small' }}\">Ann</b>"
    templates = own(tmp_path, weekly_email__html=html, x=chosen)
    assert '<b class="big" style="font-size:20px">Ann</b>' in body(mail(templates), "html")


@pytest.mark.parametrize("form", [*INCLUDES, *IMPORTS])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<script>{{ client }}</script>", r"x\.txt, line 1: .*no <script>"),
        ("{% if count == 77 %}{{ nmae }}{% endif %}", r"x\.txt, line 1: .*found nmae"),
    ],
)
def test_a_file_is_looked_through_whatever_loads_it(
    tmp_path: Path, form: str, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        own(tmp_path, weekly_email__html=f"<p>{form}</p>", x=text)


def test_files_that_are_not_of_the_languages_of_the_setting_are_looked_through_too(
    tmp_path: Path,
) -> None:
    own(tmp_path, "de", footer="{% include 'x.txt' %}", x__de="Gruß", footer__fr="Au revoir")
    with pytest.raises(UsageError, match=r"footer\.html, line 1: .*no <script>"):
        own(tmp_path, "de", footer__de_html="<p>Tschüss</p>", footer__html="<script></script>")


def test_an_attribute_stays_as_it_was_escaped_when_styles_are_put_onto_elements(
    tmp_path: Path,
) -> None:
    html = '<style>p { color: red }</style><p title="{{ client }}">&euro;&nbsp;1</p>'
    templates = own(tmp_path, weekly_email__html=html)
    found = body(mail(templates, client='</p>"&amp;\ufdd0lt;'), "html")
    title = "&lt;/p&gt;&#34;&amp;amp;\ufffdlt;"
    assert f'<p title="{title}" style="color:red">&euro;&nbsp;1</p>' in found


def test_the_html_of_many_positions_is_bounded_and_the_text_has_all_of_them() -> None:
    found = mail(positions=10_000)
    html, text = body(found, "html"), body(found, "plain")
    assert len(html.encode()) < 102 * 1024
    assert html.count("<tr><td>") == 150 + 1
    assert "And 9850 more" in html
    assert len(re.findall(r"^\d+ +AAPL ", text, re.MULTILINE)) == 10_000


def test_the_shipped_html_is_tables_with_styles_and_a_dark_mode() -> None:
    html = body(mail(name=""), "html")
    tags = Tags(html).found
    assert {"table", "th", "td", "meta", "title"} <= {tag for tag, _ in tags}
    assert all("alt" in attributes for tag, attributes in tags if tag == "img")
    assert "prefers-color-scheme: dark" in html
    assert not {"script", "link", "form", "img"} & {tag for tag, _ in tags}
    styled = [attributes["style"] for _, attributes in tags if "style" in attributes]
    assert len(styled) > 5
