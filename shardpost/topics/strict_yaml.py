"""YAML that is what it looks like: all values are text, each name is given once, with its line.

So `on`, `1:30` and `0640` stay as they are written; aliases are refused, tags mean nothing.
"""

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from shardpost.errors import UsageError

Place = tuple[int | str, ...]


class Yaml(NamedTuple):
    """Maps, lists and texts; and the line of each place."""

    values: Any
    lines: dict[Place, int]


def read_yaml(path: Path, advice: str) -> Yaml:
    """Return what a file has, an empty one a map; UsageError says what is wrong with it, and where.

    `advice` is what to do if it cannot be read.
    """
    found = Yaml({}, {})
    try:
        root = yaml.compose(_text(path, advice), Loader=yaml.BaseLoader)
        if root is None:
            return found
        return found._replace(values=_plain(root, (), found.lines, set()))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{where}: expected YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: expected YAML: {' '.join(str(error).split())}") from None
    except _WrongYamlError as error:
        raise UsageError(f"{path}, line {error.line}: {error}") from None


def dotted(place: Place) -> str:
    """Return a place as people name it."""
    return ".".join(map(str, place)) or "the file"


class _WrongYamlError(Exception):
    """YAML of a kind that is not taken."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _text(path: Path, advice: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: expected text in UTF-8, found other bytes at byte {error.start}"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}: {advice}") from None


def _plain(node: yaml.Node, place: Place, lines: dict[Place, int], seen: set[int]) -> Any:
    """Return the node's values; notes the line of each, and refuses what would be misread."""
    line = node.start_mark.line + 1
    lines[place] = line
    if id(node) in seen:
        raise _WrongYamlError(line, f"{dotted(place)}: expected no alias (`*`)")
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, (*place, n), lines, seen) for n, one in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _WrongYamlError(at, f"{dotted(place)}: expected a name, found a list or a map")
        if key.value in found:
            raise _WrongYamlError(at, f"{dotted((*place, key.value))}: expected once, found twice")
        found[key.value] = _plain(value, (*place, key.value), lines, seen)
        lines[*place, key.value] = at
    return found
