"""docs/runbook.md and docs/watching.md are what the code declares."""

import re

from shardpost.alerts.model.alert import CHANNEL_DOWN, NEEDS_A_PERSON, TASK_FAILED
from shardpost.alerts.model.metrics import METRICS, PREFIX
from shardpost.checkout import CHECKOUT
from shardpost.watch.model import conditions

DOCS = CHECKOUT / "docs"
METRIC = re.compile(r"^\| `shardpost_(\w+)` \| (.*?) ?\| (.+) \|$", re.MULTILINE)


def rules_of_the_audit() -> set[str]:
    """Return the names that findings are given."""
    found = set[str]()
    for path in (CHECKOUT / "shardpost" / "topics" / "model").glob("*.py"):
        text = path.read_text()
        for named in (r'rule="([\w-]+)"', r'_Rule\(\s*"([\w-]+)"', r'view,\s*"([\w-]+)"'):
            found.update(re.findall(named, text))
    return found


def test_every_rule_has_its_page_and_no_page_is_of_none() -> None:
    page = (DOCS / "runbook.md").read_text()
    written = re.findall(r"^### (\S+)$", page, re.MULTILINE)
    declared = [one.name for one in vars(conditions).values() if isinstance(one, conditions.Rule)]
    others = (CHANNEL_DOWN, TASK_FAILED, NEEDS_A_PERSON)
    assert sorted(written) == sorted([*declared, *rules_of_the_audit(), *others])


def test_the_page_of_the_metrics_is_what_the_code_declares() -> None:
    written = METRIC.findall((DOCS / "watching.md").read_text())
    declared = [
        (one.name, ", ".join(f"`{label}`" for label in one.labels), one.meaning)
        for one in METRICS.values()
    ]
    assert written == declared
    assert PREFIX == "shardpost_"
