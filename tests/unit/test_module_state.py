"""No module keeps anything that changes: what stays open is in an installation, or in its user."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardpost.checkout import PACKAGE

# What changes is made by these; the classes of ours that are caches count too.
CONTAINERS = {"dict", "list", "set", "defaultdict", "deque", "OrderedDict", "WeakSet", "Counter"}
GUARDS = {"Lock", "RLock", "Event", "Condition"}
OURS = {"Kept", "KeptClients"}
# What a process remembers for as long as it lives: functions without parameters, called once.
OF_THE_PROCESS = {
    ("values/addresses.py", "_allow_local_domains"),  # of a library that has a list at its module
    ("checkout.py", "code_digest"),  # the code that it runs, whatever is on disk later
    ("locks/process_identity.py", "_machine"),  # its machine, which does not change
    ("page/rendering.py", "environment"),  # of files that are part of the code
    ("page/rendering.py", "runbook_html"),  # of one, too
    ("weekly_email/smtp_server.py", "_own_name"),  # a name server is asked
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


def cached(path: Path) -> Iterator[str]:
    """Yield the functions without parameters whose result is kept."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and not ast.unparse(node.args):
            names = {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
            if names & {"cache", "lru_cache"}:
                yield node.name


@pytest.mark.parametrize(("names_in", "left"), [(changing, set()), (cached, OF_THE_PROCESS)])
def test_modules_keep_nothing_that_changes_but_what_is_named_here(
    names_in: Callable[[Path], Iterator[str]], left: set[tuple[str, str]]
) -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        for name in names_in(path)
    }
    assert found == left
