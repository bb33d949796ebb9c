"""No module keeps anything that changes: what stays open is in an installation, or in its user."""

import ast
from collections.abc import Iterator
from pathlib import Path

from shardpost.checkout import PACKAGE

# What changes is made by these; the classes of ours that are caches count too.
CONTAINERS = {"dict", "list", "set", "defaultdict", "deque", "OrderedDict", "WeakSet", "Counter"}
GUARDS = {"Lock", "RLock", "Event", "Condition"}
OURS = {"Kept", "KeptClients", "KeptVersions"}
# The page's memory, in the process of the API server, and the one line of a terminal.
LEFT = {
    ("dead_letters/letter_index.py", "_making"),
    ("dead_letters/letter_index.py", "_last"),
    ("progress.py", "_shown"),
    ("weekly_email/kept_folds.py", "_FOLDS"),
    ("weekly_email/kept_folds.py", "_MEMBERS"),
    ("weekly_email/kept_folds.py", "_READING"),
    ("weekly_email/kept_folds.py", "_STATUSES"),
    ("weekly_email/week_totals.py", "_READERS"),
}


def changing(path: Path) -> Iterator[str]:
    """Yield the names at the top of a module whose values are there to be changed."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=value)
            ) if value is not None and is_changing(value):
                yield name


def is_changing(value: ast.expr) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)):
            return name in CONTAINERS | GUARDS | OURS
        case ast.Call(func=ast.Subscript(value=ast.Name(name))):
            return name in CONTAINERS | OURS
    return False


def test_modules_keep_nothing_that_changes_but_what_is_named_here() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name in changing(path)
    }
    assert found == LEFT
