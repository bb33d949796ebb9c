"""Kafka itself: what the audit finds."""

from collections import Counter
from datetime import datetime

from shardpost.alerts.model.alert import Condition, Severity
from shardpost.audit import audit
from shardpost.settings import Settings
from shardpost.topics.model.finding import ORDER, Finding
from shardpost.watch.model.found import Found


def look(settings: Settings, now: datetime) -> Found:
    """Measure the findings of the audit; those with nothing at stake are counted alone."""
    found = Found()
    findings = audit(settings, now)
    counts = Counter(one.severity for one in findings)
    for severity in ORDER:
        found.measure("audit_findings", counts[severity], severity=severity)
    if any(one.rule == "unknown" for one in findings):
        found.unmeasured.add("kafka")
    found.conditions += [_condition(one) for one in findings if one.severity != "drift"]
    return found


def _condition(finding: Finding) -> Condition:
    subject = f"{finding.topic} {finding.setting}" if finding.topic else finding.setting
    text = (
        f"{finding.setting} is {finding.found} ({finding.source}), expected {finding.expected};"
        f" {finding.fix}"
    )
    return Condition(finding.rule, subject, Severity(finding.severity), text, finding.why)
