"""Write docs/dags.md from the DAGs themselves; with --check, only say whether it is current.

.venv/bin/python docs/generate_dags.py
"""

import os
import sys
import tempfile
from collections import Counter
from typing import Any

from shardpost.checkout import CHECKOUT
from shardpost.embedded.airflow_home import environment
from shardpost.settings import load

Row = tuple[str, str, str]

PAGE = CHECKOUT / "docs" / "dags.md"
HEAD = """# The DAGs

Generated from the DAGs by `.venv/bin/python docs/generate_dags.py`; a test says when it is old. The
Airflow UI shows the same. A task has two retries, except where this page says *no retry*.
"""
RETRIES = 2  # of all tasks but those that say otherwise


def main() -> int:
    """Write or check the page; return the exit code."""
    with tempfile.TemporaryDirectory() as home:
        os.environ |= environment(load({"SHARDPOST_HOME": home}))
        text = _page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.stderr.write(f"{PAGE} is not current: run `python docs/generate_dags.py`\n")
        return 1
    return 0


def _page() -> str:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=CHECKOUT / "dags").dags
    dags = [bag[name] for name in sorted(bag)]
    rows = Counter(row for dag in dags for row in _params(dag))
    shared = [row for row, count in rows.items() if count > 1]
    head = _table("param of several DAGs", "default", "meaning", shared) + "\n"
    return "\n".join([HEAD, head, *(_section(dag, shared) for dag in dags)])


def _section(dag: Any, shared: list[Row]) -> str:
    parts = [f"## {dag.dag_id}", _schedule(dag), dag.doc_md.strip()]
    params = _params(dag)
    if own := [row for row in params if row not in shared]:
        parts.append(_table("param", "default", "meaning", own))
    if common := [row[0] for row in params if row in shared]:
        parts.append(f"Also, [as above](#the-dags): {', '.join(common)}.")
    return "\n\n".join([*parts, "Tasks:", _tasks(dag)]) + "\n"


def _schedule(dag: Any) -> str:
    from airflow.serialization.encoders import coerce_to_core_timetable

    return f"Schedule: {coerce_to_core_timetable(dag.timetable).description}."


def _params(dag: Any) -> list[Row]:
    params = {name: dag.params.get_param(name) for name in dag.params}
    return [
        (f"`{name}`", "" if param.value is None else f"`{param.value}`".lower(), _meaning(param))
        for name, param in params.items()
    ]


def _meaning(param: Any) -> str:
    """Return the description of a param, with its choices as the form names them."""
    choices = dict(param.schema.get("values_display", {}))
    if all(choices[name] == name for name in choices if name != "null"):  # the text has them
        return str(param.description)
    empty = choices.pop("null")
    return f"{param.description} {'; '.join(choices.values())}. Empty: {empty}."


def _tasks(dag: Any) -> str:
    said = {RETRIES: "", 0: " *No retry.*"}
    ordered = dag.topological_sort()
    return "\n".join(f"- `{task.task_id}`: {task.doc_md}{said[task.retries]}" for task in ordered)


def _table(*columns_then_rows: Any) -> str:
    *columns, rows = columns_then_rows
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
