"""Pages of docs/ are what the code declares, and what docs/monitoring names is there."""

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from shardpost.alerts.model.alert import (
    CHANNEL_DOWN,
    DEADLINE_MISSED,
    NEEDS_A_PERSON,
    REQUESTS_LOST,
    TASK_FAILED,
)
from shardpost.alerts.model.metrics import METRICS, PREFIX
from shardpost.checkout import CHECKOUT
from shardpost.maintenance.stored_tables import TABLES
from shardpost.topics.model import audit, topic_rules
from shardpost.watch.model import conditions

FOLDER = CHECKOUT / "docs" / "monitoring"
RULES = yaml.safe_load((FOLDER / "alert-rules.yml").read_text())
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
PANELS = DASHBOARD["panels"]
# Of Prometheus itself; and what it adds to every sample.
NOT_OURS, ADDED = {"up"}, {"instance", "job", "__name__"}
LABEL = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


def selectors(found: Any) -> Iterator[Any]:
    """Yield the selectors of vectors within an expression."""
    if isinstance(found, promql_parser.VectorSelector):
        yield found
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        inner = getattr(found, name, None)
        if inner is not None and not isinstance(inner, (str, int, float)):
            yield from selectors(inner)
    for inner in getattr(found, "args", None) or []:
        yield from selectors(inner)


def check(expression: str) -> set[str]:
    """Check the names and labels of an expression; return the labels that its metrics have."""
    known = set(ADDED)
    found = list(selectors(promql_parser.parse(expression)))
    assert found, expression
    for one in found:
        if one.name in NOT_OURS:
            continue
        labels = set(METRICS[one.name.removeprefix(PREFIX)].labels)
        assert {matcher.name for matcher in one.matchers.matchers} <= labels, expression
        known |= labels
    return known


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_rule_names_what_there_is(rule: dict[str, Any]) -> None:
    labels = check(rule["expr"])
    assert set(LABEL.findall(rule["annotations"]["summary"])) <= labels
    assert rule["labels"]["severity"] in ("loss", "risk", "drift")


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_names_what_there_is(panel: dict[str, Any]) -> None:
    [target] = panel["targets"]
    labels = check(target["expr"])
    assert set(LABEL.findall(target["legendFormat"])) <= labels
    assert panel["description"]
    is_time = "_seconds" in target["expr"]
    assert (panel["fieldConfig"]["defaults"]["unit"] == "s") == is_time


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus)")
def test_prometheus_itself_takes_the_rules() -> None:
    for command in (
        ("check", "rules", "alert-rules.yml"),
        ("test", "rules", "alert-rules-test.yml"),
        ("check", "config", "--syntax-only", "prometheus.yml"),
    ):
        done = subprocess.run(
            ["promtool", *command], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


DOCS = CHECKOUT / "docs"


def rules_of_the_audit() -> set[str]:
    """Return the names that findings are given, by their function or by a declaration."""
    names = {audit.rule_name(rule) for rule in (*audit.TOPIC_RULES, *audit.CLUSTER_RULES)}
    names -= {"topic-settings", "replicas-now"}  # which have these declarations
    settings = {one.rule for one in topic_rules.SETTING_RULES}
    return names | settings | {one.rule for one in audit.STATES}


def test_every_rule_has_its_page_and_no_page_is_of_none() -> None:
    page = (DOCS / "runbook.md").read_text()
    written = re.findall(r"^### (\S+)$", page, re.MULTILINE)
    declared = [one.name for one in vars(conditions).values() if isinstance(one, conditions.Rule)]
    others = (CHANNEL_DOWN, DEADLINE_MISSED, TASK_FAILED, NEEDS_A_PERSON, REQUESTS_LOST)
    assert sorted(written) == sorted([*declared, *rules_of_the_audit(), *others])


def test_what_pages_have_of_declarations_is_current() -> None:
    renewed = runpy.run_path(str(DOCS / "generate.py"))["renewed"]
    pages = {page.name: page.read_text() for page in DOCS.glob("*.md")}
    old = [name for name, text in pages.items() if renewed(text) != text]
    assert old == [], "run .venv/bin/python docs/generate.py"


def test_each_table_has_its_section_and_comments_are_of_columns() -> None:
    sections = re.findall(r"<!-- columns of (\w+) -->", (DOCS / "tables.md").read_text())
    assert sorted(sections) == sorted(table.name for table in TABLES)
    names = {name for table in TABLES for name in table.names}
    assert {name for table in TABLES for name in table.comments} - names == set()
