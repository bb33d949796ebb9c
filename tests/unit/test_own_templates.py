"""A template cannot take more time, memory or output than the page may spend on it."""

from dataclasses import replace

import pytest

from shardpost.settings import Settings
from shardpost.weekly_email.model.mail_rendering import TemplateError, rendered
from shardpost.weekly_email.model.mail_templates import SAMPLES, MailTemplates
from shardpost.weekly_email.own_templates import (
    TemplateSettings,
    bounded_rendered,
    bounded_templates_of,
    with_subject,
)
from tests.support.how_far import some
from tests.support.installed import installed

SHIPPED = MailTemplates()


def test_a_mail_within_bounds_is_the_same_as_without_them() -> None:
    found = bounded_rendered(SHIPPED, None, SAMPLES[1], is_tried=True)
    assert found == rendered(SHIPPED, None, SAMPLES[1])


@pytest.mark.parametrize(
    ("template", "said"),
    some(
        [
            ("{{ 'a' * 900000000 }}", "tried/subject.txt, line 1: expected text that fits"),
            (
                "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                "the mail was not rendered within",
            ),
            (
                "{% for a in range(99999) %}{{ 'a' * 99 }}{% endfor %}",
                "at most 4,194,304 characters",
            ),
            ("\n{{ nmae }}", "tried/subject.txt, line 2: "),
        ]
    ),
)
def test_a_template_beyond_bounds_or_wrong_is_refused(template: str, said: str) -> None:
    tried = with_subject(replace(SHIPPED, files=(("weekly_email.txt", template),)), template)
    with pytest.raises(TemplateError, match=said):
        bounded_rendered(tried, None, SAMPLES[0], is_tried=True)


def test_templates_of_the_settings_are_tried_within_bounds(at: Settings) -> None:
    assert bounded_templates_of(installed(at).values(TemplateSettings)) == SHIPPED
    (at.home / "look").mkdir(parents=True)
    (at.home / "look" / "subject.txt").write_text("{{ nmae }}")
    with pytest.raises(TemplateError, match="found nmae"):
        bounded_templates_of(TemplateSettings(at.home / "look", None))
