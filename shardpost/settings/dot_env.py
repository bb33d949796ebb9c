"""The file `.env`: its variables, and what is wrong with its lines."""

from dataclasses import dataclass, field
from pathlib import Path

from shardpost.settings.prefixes import PREFIX

# docker compose reads the same file.
_OF_OTHERS = ("COMPOSE_", "DOCKER_")


@dataclass
class DotEnv:
    """{variable: value}, {variable: its line}, and what is wrong, each with its line."""

    path: Path
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def where(self, name: str) -> str:
        """Return where a variable is set, as an addition to its name."""
        return f" (line {self.lines[name]} of {self.path})" if name in self.lines else ""


def read_dot_env(path: Path) -> DotEnv:
    """Return what the file has; empty where there is none."""
    found = DotEnv(path)
    if not path.is_file():
        return found
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    with path.open(encoding="utf-8") as file:
        for line in parse_stream(file):
            number = line.original.line + _blank_lines(line.original.string)
            if line.error or (line.key is not None and line.value is None):
                found.problems.append(f"line {number} of {path}: expected NAME=value")
            elif line.key is not None:
                found.lines[line.key] = number
    # Values may name other variables, as in ${HOME}.
    found.values = {name: value or "" for name, value in dotenv_values(path).items()}
    found.problems += [
        f"line {number} of {path}: expected a setting, which begins with {PREFIX}, found {name}:"
        " set other variables in the environment"
        for name, number in found.lines.items()
        if not name.upper().startswith((PREFIX, *_OF_OTHERS))
    ]
    return found


def _blank_lines(text: str) -> int:
    """Return how many empty lines come before the one that has something."""
    return len(text[: len(text) - len(text.lstrip())].splitlines())
