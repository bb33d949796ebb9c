"""Write what the documents have from declarations: docs/dags.md, and the marked parts of others.

.venv/bin/python docs/generate.py

A part begins with `<!-- NAME -->`, or `<!-- NAME of THING -->`, and ends with `<!-- end -->`.
"""

import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from typing import Any

import click

from shardpost.alerts.model.metrics import METRICS, PREFIX
from shardpost.checkout import CHECKOUT
from shardpost.cli import LONGEST_SENTENCE, root
from shardpost.delta.table import type_text
from shardpost.embedded.airflow import environment
from shardpost.maintenance.stored_tables import TABLES
from shardpost.settings import load
from shardpost.topics.model import audit, topic_rules
from shardpost.watch.model import conditions

DOCS = CHECKOUT / "docs"
DAGS = DOCS / "dags.md"
HEAD = """# The DAGs

A task has two retries, except where this page says *no retry*. An unknown param fails a run before
it does anything.
"""
PART = re.compile(r"(<!-- (\w+|columns of \w+) -->)\n(?:.*?\n)?(<!-- end -->)", re.DOTALL)
RETRIES = 2  # of all tasks but those that say otherwise
LEAST_SHARED = 4  # columns with which two tables begin, and which are not repeated
DECLARED = {"topic-settings": topic_rules.SETTING_RULES, "replicas-now": audit.STATES}


def main() -> None:
    """Write all parts."""
    with tempfile.TemporaryDirectory() as home:
        os.environ |= environment(load({"SHARDPOST_HOME": home}))
        DAGS.write_text(dags_page())
    for page in DOCS.glob("*.md"):
        page.write_text(renewed(page.read_text()))


def renewed(text: str) -> str:
    """Return a page with its marked parts as they are declared now."""
    of = {"metrics": _metrics, "commands": _commands, "alerts": _alerts, "audit": _audit}
    of |= {f"columns of {one.name}": partial(_columns, at) for at, one in enumerate(TABLES)}
    return PART.sub(lambda part: "\n".join([part[1], *of[part[2]](), part[3]]), text)


def _table(*columns_then_rows: Any) -> str:
    *columns, rows = columns_then_rows
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(re.sub(" +", " ", f"| {' | '.join(line)} |") for line in lines)


def _columns(at: int) -> Iterator[str]:
    """Return the columns of a table; those with which an earlier one begins, too, by its name."""
    table, shared, like = TABLES[at], list[str](), ""
    for other in TABLES[:at]:
        pairs = zip(table.columns, other.columns, strict=False)
        common = [one[0] for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        if len(common) >= max(LEAST_SHARED, len(shared) + 1):
            shared, like = common, other.name
    if len(shared) == len(table.columns):
        yield f"Columns are those of `{like}`."
        return
    if like:
        yield f"Columns are those of `{like}` up to `{shared[-1]}`, then:\n"
    own = table.columns[len(shared) :]
    rows = [(f"`{name}`", type_text(kind), table.comments.get(name, "")) for name, kind in own]
    yield _table("column", "type", "meaning", rows)


def _metrics() -> Iterator[str]:
    for one in METRICS.values():
        labels = f" by {', '.join(f'`{label}`' for label in one.labels)}" if one.labels else ""
        yield f"- `{PREFIX}{one.name}`{labels}: {one.meaning}."


def _alerts() -> Iterator[str]:
    for rule in (one for one in vars(conditions).values() if isinstance(one, conditions.Rule)):
        yield f"- [{rule.name}](#{rule.name}), `{rule.severity}`: {rule.meaning}."


def _audit() -> Iterator[str]:
    """Yield each rule with what it finds; those of one function have a declaration each."""
    for rule in (*audit.TOPIC_RULES, *audit.CLUSTER_RULES):
        name, finds = audit.rule_name(rule), str(rule.__doc__).splitlines()[0]
        declared = DECLARED.get(name) or [(name, finds.removeprefix("Find ").rstrip("."))]
        yield from (f"- [{rule}](#{rule}): {why}." for rule, why, *_ in declared)


def _commands(command: click.Command = root, name: str = "") -> Iterator[str]:
    """Yield each command that does something, with the first sentence of its help."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield f"- `{name.strip()}`: {command.get_short_help_str(LONGEST_SENTENCE)}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            if found := command.get_command(context, inner):
                yield from _commands(found, f"{name} {inner}")


def dags_page() -> str:
    """Return the page of all DAGs; the environment is that of an Airflow."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=CHECKOUT / "dags").dags
    dags = [bag[name] for name in sorted(bag)]
    rows = Counter(row for dag in dags for row in _params(dag))
    shared = [row for row, count in rows.items() if count > 1]
    head = _table("param of several DAGs", "default", "meaning", shared) + "\n"
    return "\n".join([HEAD, head, *(_section(dag, shared) for dag in dags)])


def _section(dag: Any, shared: list[Any]) -> str:
    from airflow.serialization.encoders import coerce_to_core_timetable

    schedule = coerce_to_core_timetable(dag.timetable).description
    parts = [f"## {dag.dag_id}", f"Schedule: {schedule}.", dag.doc_md.strip()]
    params = _params(dag)
    if own := [row for row in params if row not in shared]:
        parts.append(_table("param", "default", "meaning", own))
    if common := [row[0] for row in params if row in shared]:
        parts.append(f"Also, [as above](#the-dags): {', '.join(common)}.")
    said = {RETRIES: "", 0: " *No retry.*"}
    tasks = (f"- `{t.task_id}`: {t.doc_md}{said[t.retries]}" for t in dag.topological_sort())
    return "\n\n".join([*parts, "Tasks:", "\n".join(tasks)]) + "\n"


def _params(dag: Any) -> list[tuple[str, str, str]]:
    params = ((f"`{name}`", dag.params.get_param(name)) for name in dag.params)
    value = {None: ""}
    return [(name, value.get(p.value, f"`{p.value}`".lower()), _meaning(p)) for name, p in params]


def _meaning(param: Any) -> str:
    """Return the description of a param, with its choices as the form names them."""
    choices = dict(param.schema.get("values_display", {}))
    if all(choices[name] == name for name in choices if name != "null"):  # the text has them
        return str(param.description)
    empty = choices.pop("null")
    return f"{param.description} {'; '.join(choices.values())}. Empty: {empty}."


if __name__ == "__main__":
    main()
