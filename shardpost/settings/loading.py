"""Reading the settings from the environment and from `.env`."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from shardpost.checkout import CHECKOUT
from shardpost.errors import UsageError
from shardpost.settings.prefixes import CLIENT_PREFIX, PREFIX
from shardpost.settings.values import Settings


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process, read once, or those of the given variables.

    The environment takes precedence over `.env`. UsageError names a setting that is wrong.
    """
    if environ is None:
        return _of_this_process()
    return _parsed({**_dot_env(CHECKOUT / ".env"), **environ})


@lru_cache(maxsize=1)
def _of_this_process() -> Settings:
    return _parsed({**_dot_env(CHECKOUT / ".env"), **os.environ})


def _dot_env(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    return {name: value or "" for name, value in dotenv_values(path).items()}


def _parsed(environ: Mapping[str, str]) -> Settings:
    given = {name: value for name, value in environ.items() if name.upper().startswith(PREFIX)}
    values: dict[str, object] = {}
    client: dict[str, str] = {}
    for name, value in given.items():
        if name.startswith(CLIENT_PREFIX):
            client[name.removeprefix(CLIENT_PREFIX).lower().replace("_", ".")] = value
        elif (field := name.removeprefix(PREFIX).lower()) in Settings.model_fields:
            if value:
                values[field] = value
        else:
            raise UsageError(f"unknown setting {name}: see .env.example for all settings")
    try:
        return Settings.model_validate({**values, "kafka": client})
    except ValidationError as error:
        raise _usage_error(error) from None


def _usage_error(error: ValidationError) -> UsageError:
    """Return the first of several errors; a password is not shown."""
    first = error.errors()[0]
    name = PREFIX + str(first["loc"][0]).upper()
    value = "" if "PASSWORD" in name else f"={first['input']!r}"
    return UsageError(f"setting {name}{value}: {first['msg'].removeprefix('Value error, ')}")
