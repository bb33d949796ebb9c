"""Reading the settings from the environment and from `.env`."""

import os
from collections.abc import Mapping
from functools import lru_cache

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shardpost.checkout import CHECKOUT
from shardpost.errors import UsageError
from shardpost.settings.client_settings import client_name, client_problems
from shardpost.settings.dot_env import DotEnv, read_dot_env
from shardpost.settings.names import unknown_name
from shardpost.settings.prefixes import CLIENT_PREFIX, PREFIX
from shardpost.settings.values import Settings

_FIELDS = frozenset(Settings.model_fields) - {"kafka"}
_VARIABLES = sorted(PREFIX + field.upper() for field in _FIELDS)
_MESSAGE_BEGINS = "Value error, "
# {type of Pydantic's error: what was expected}, where its own text speaks of Python.
_EXPECTED = {
    "int_parsing": "expected a whole number",
    "float_parsing": "expected a number",
    "bool_parsing": "expected true or false",
}


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process, read once, or those of the given variables.

    The environment takes precedence over `.env`. UsageError names all settings that are wrong.
    """
    if environ is None:
        return _of_this_process()
    return _parsed(read_dot_env(CHECKOUT / ".env"), environ)


@lru_cache(maxsize=1)
def _of_this_process() -> Settings:
    return _parsed(read_dot_env(CHECKOUT / ".env"), os.environ)


def _parsed(file: DotEnv, environ: Mapping[str, str]) -> Settings:
    for name in environ:
        file.lines.pop(name, None)  # it comes from the environment
    given = {
        name: value
        for name, value in {**file.values, **environ}.items()
        if name.upper().startswith(PREFIX)
    }
    values: dict[str, str] = {}
    client: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in given.items():
        if name.startswith(CLIENT_PREFIX):
            client |= {client_name(name): value} if value else {}
        elif (field := name.removeprefix(PREFIX).lower()) in _FIELDS and name.isupper():
            values |= {field: value} if value else {}
        else:
            unknown.append(unknown_name(name, _VARIABLES) + file.where(name))
    settings, wrong = _validated({**values, "kafka": client}, file)
    if problems := [*file.problems, *unknown, *wrong, *client_problems(client)]:
        raise UsageError("; ".join(problems))
    assert settings is not None  # noqa: S101 - else something is wrong
    return settings


def _validated(values: Mapping[str, object], file: DotEnv) -> tuple[Settings | None, list[str]]:
    """Return the settings, or what is wrong with each."""
    try:
        return Settings.model_validate(values), []
    except ValidationError as error:
        return None, [_problem(one, file) for one in error.errors()]


def _problem(error: ErrorDetails, file: DotEnv) -> str:
    """Return what is wrong with one setting; a secret, which has no `repr`, is not shown."""
    field = str(error["loc"][0])
    name = PREFIX + field.upper()
    is_shown = Settings.model_fields[field].repr and error["input"] is not None
    value = f"={error['input']!r}" if is_shown else ""
    message = _EXPECTED.get(error["type"]) or error["msg"].removeprefix(_MESSAGE_BEGINS)
    return f"setting {name}{value}{file.where(name)}: {message}"
