"""The file `.env`: its variables, and what is wrong with its lines."""

from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from shardpost.errors import UsageError
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
    """Return what the file has; empty where there is none. UsageError if it cannot be read."""
    found = DotEnv(path)
    text = _text(path)
    if not text:
        return found
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    valid = ""
    for line in parse_stream(StringIO(text)):
        number = line.original.line + _blank_lines(line.original.string)
        if line.error or (line.key is not None and line.value is None):
            found.problems.append(f"line {number} of {path}: expected NAME=value")
        elif line.key is not None:
            found.lines[line.key] = number
            valid += line.original.string
    # Values may name other variables, as in ${HOME}. It logs what it takes for no line.
    values = dotenv_values(stream=StringIO(valid))
    found.values = {name: value or "" for name, value in values.items()}
    found.problems += [
        f"line {number} of {path}: expected a setting, which begins with {PREFIX}, found {name}:"
        " set other variables in the environment"
        for name, number in found.lines.items()
        if not name.upper().startswith((PREFIX, *_OF_OTHERS))
    ]
    return found


def _text(path: Path) -> str:
    """Return the text of the file, without the mark that some editors begin it with."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):  # remote workers import from an archive
        return ""
    except IsADirectoryError:
        raise UsageError(f"{path}: expected a file of settings, found a folder") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: expected text in UTF-8, found other bytes at byte {error.start}:"
            " save the file as UTF-8"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _blank_lines(text: str) -> int:
    """Return how many empty lines come before the one that has something."""
    return len(text[: len(text) - len(text.lstrip())].splitlines())
