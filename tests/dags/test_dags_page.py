"""docs/dags.md is what the DAGs say of themselves."""

import runpy

import pytest

from shardpost.checkout import CHECKOUT


def test_the_page_of_all_dags_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(CHECKOUT / "docs" / "generate_dags.py"))
    assert script["_page"]() == script["PAGE"].read_text()
