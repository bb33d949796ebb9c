"""What all pages have in common: who may see and act, whose forms are taken, their headers."""

import pytest

from shardpost.page.rendering import SECTIONS
from shardpost.settings import Settings
from tests.support.page_client import page_client


@pytest.mark.parametrize("path", [one.path for one in SECTIONS[1:2]])
def test_without_a_table_a_page_says_what_to_do(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with page_client(settings, monkeypatch) as page:
        assert "no snapshot" in page.get(path, status=503)
