"""Links of the documents and of the code to them lead somewhere; the tests they name exist."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from shardpost.checkout import CHECKOUT

PAGES = [
    *(CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    CHECKOUT / "bench" / "README.md",
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
CODE = [
    *(CHECKOUT / name for name in ("Makefile", "Dockerfile", "docker-compose.yml", ".env.example")),
    *(
        path
        for folder in ("shardpost", "dags", "plugins", "spark_jobs", "scripts", "tests", "deploy")
        for path in sorted((CHECKOUT / folder).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ),
]
WORDS = 48_000  # of all documents, generated pages included
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`]*`")
LINK = re.compile(r'\]\(([^)\s]+)\)|\b(?:src|srcset|href)="([^"]+)"')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ID = re.compile(r'<a id="([\w-]+)">')
NAMED = re.compile(r"docs/[\w/.-]+\.md(?:#[\w-]+)?")
DECISION = re.compile(r"\bdocs/decisions/\d{4}")
TEST = re.compile(r"`(tests/[\w/.]+)::(\w+)`")
QUANTITY = re.compile(r"\b\d[\d.,]*(?: to \d[\d.]*)? (?:s|MB|GB|minutes|records)\b")
NOT_MEASURED = {"15 minutes", "20 minutes"}  # a schedule, and the tour


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of its headings."""
    text = BLOCK.sub("", page.read_text())
    found = set(ID.findall(text))
    seen = Counter[str]()
    for heading in HEADING.findall(text):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def is_there(target: str, source: Path) -> bool:
    """Tell whether a link from a file leads to a file, and to one of its headings."""
    path, _, anchor = target.partition("#")
    to = (source.parent / path).resolve() if path else source
    if not to.exists():
        return False
    return not anchor or (to.suffix == ".md" and anchor in anchors(to))


def links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page; what is in code is none."""
    text = INLINE.sub("", BLOCK.sub("", page.read_text()))
    for match in LINK.finditer(text):
        target = match[1] or match[2]
        if not re.match(r"https?:|mailto:", target):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [target for target in links(page) if not is_there(target, page)] == []


def test_the_code_names_pages_and_headings_that_exist() -> None:
    dead = []
    for path in CODE:
        text = path.read_text(errors="replace")
        dead += [
            f"{path.relative_to(CHECKOUT)}: {named}"
            for named in NAMED.findall(text)
            if not is_there(named, CHECKOUT / "README.md")
        ]
        dead += [
            f"{path.relative_to(CHECKOUT)}: {named}"
            for named in DECISION.findall(text)
            if not list(CHECKOUT.glob(f"{named}-*.md"))
        ]
    assert dead == []


HOW_FAR = CHECKOUT / "tests" / "support" / "how_far.py"


@pytest.mark.parametrize(
    "page", [*PAGES, HOW_FAR], ids=lambda page: str(page.relative_to(CHECKOUT))
)
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    for path, name in TEST.findall(page.read_text()):
        assert f"def {name}(" in (CHECKOUT / path).read_text(), f"{path}::{name}"


def test_the_documents_are_not_longer_than_a_person_reads() -> None:
    not_counted = {"CHANGELOG.md", "bench/README.md"}
    names = {str(page.relative_to(CHECKOUT)) for page in PAGES} - not_counted
    words = {name: len((CHECKOUT / name).read_text().split()) for name in names}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:5]
    assert sum(words.values()) <= WORDS, f"the longest: {longest}"


def test_what_the_readme_measures_is_on_the_page_of_measurements() -> None:
    found = set(QUANTITY.findall((CHECKOUT / "README.md").read_text())) - NOT_MEASURED
    measured = " ".join((CHECKOUT / "docs" / "performance.md").read_text().split())
    assert len(found) > 5
    assert {quantity for quantity in found if quantity not in measured} == set()


def test_each_claim_of_the_readme_has_a_section_that_names_tests() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    sections = (CHECKOUT / "docs" / "guarantees.md").read_text().split("\n## ")[1:]
    assert readme.count("docs/guarantees.md#") == len(sections)
    assert [section for section in sections if not TEST.search(section)] == []


def test_each_page_is_in_the_index() -> None:
    index = {target.partition("#")[0] for target in links(CHECKOUT / "docs" / "README.md")}
    pages = {path.name for path in (CHECKOUT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(pages - index) == []
