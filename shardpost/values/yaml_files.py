"""A YAML file that people write, checked by a model of Pydantic; each error has its line.

It is read as text, so `on`, `1:30` and `0640` stay as they are written.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from shardpost.errors import UsageError, first_line
from shardpost.wording import expected, meant

Place = tuple[int | str, ...]
M = TypeVar("M", bound=BaseModel)

# `config:` with nothing after it is the empty map that it looks like.
EMPTY_IS_A_MAP = BeforeValidator(lambda value: {} if value == "" else value)
_QUOTED = re.compile(r"'([^']*)'")


def text_value(text: str) -> str:
    """Check a text that may not be blank."""
    if not text.strip():
        raise ValueError("expected a value, found none")
    return text


@dataclass(frozen=True)
class YamlFile:
    """A file as maps, lists and texts."""

    path: Path
    root: yaml.Node | None
    values: Any

    @classmethod
    def read(cls, path: Path, text: str) -> "YamlFile":
        """Read its text; UsageError names the line of what is no YAML, or would be misread."""
        try:
            root = yaml.compose(text, Loader=yaml.BaseLoader)
            return cls(path, root, _values(root, set()) if root else {})
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or first_line(error)
            raise UsageError(f"{path}{where}: expected YAML: {problem}") from None

    def checked(
        self,
        model: type[M],
        names_at: Callable[[Place], Iterable[str]],
        also_wrong: Iterable[tuple[Place, str]] = (),
    ) -> M:
        """Return the file as a model; UsageError lists all mistakes, with their lines.

        `names_at` returns the names that are known at the place of an unknown one.
        """
        problems = [*also_wrong]
        file: M | None = None
        try:
            file = model.model_validate(self.values)
        except ValidationError as error:
            places = [
                tuple(part for part in one["loc"] if part != "[key]") for one in error.errors()
            ]
            wrong = zip(places, error.errors(), strict=True)
            problems[:0] = [(place, _expected(one, place, names_at)) for place, one in wrong]
        if problems or file is None:
            said = dict.fromkeys(
                (self._line(place), f"{'.'.join(map(str, place)) or 'the file'}: {text}")
                for place, text in problems
            )
            ordered = sorted(said, key=itemgetter(0))
            raise UsageError(
                "; ".join(f"{self.path}, line {line}: {text}" for line, text in ordered)
            )
        return file

    def map(self, *place: str) -> dict[str, Any]:
        """Return the map at a place, an empty one where there is none."""
        values = self.values
        for part in place:
            values = values.get(part) if isinstance(values, dict) else None
        return values if isinstance(values, dict) else {}

    def _line(self, place: Place) -> int:
        """Return the line of a place, or of what is there of it."""
        node, line = self.root, 1
        for part in place:
            names = node.value if isinstance(node, yaml.MappingNode) else ()
            there = {key.value: (key, value) for key, value in names}
            if part not in there:
                break
            key, node = there[part]
            line = key.start_mark.line + 1
        return line


def _values(node: yaml.Node, seen: set[int]) -> Any:
    """Return a node as maps, lists and texts; MarkedYAMLError for what would be misread."""
    if id(node) in seen:
        problem = "an alias (`*`), which is not supported"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_values(one, seen) for one in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in found:
            is_name = isinstance(key, yaml.ScalarNode)
            problem = f"{key.value!r} appears twice" if is_name else "a list or a map as a name"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        found[key.value] = _values(value, seen)
    return found


def _expected(error: ErrorDetails, place: Place, names_at: Callable[[Place], Iterable[str]]) -> str:
    found = "" if isinstance(error["input"], dict) else f", found {error['input']!r}"
    match error["type"]:
        case "extra_forbidden":
            return f"unknown name{meant(str(place[-1]), names_at(place[:-1]))}"
        case "literal_error":
            known = error["ctx"]["expected"]
            said = meant(str(error["input"]), _QUOTED.findall(known))
            return f"expected one of {known}{found}{said}"
        case _:
            return expected(error) + found
