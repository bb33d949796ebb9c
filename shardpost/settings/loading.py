"""Reading the settings from the environment and the file `.env`, and what is wrong with them.

Where SHARDPOST_INSTALLATIONS declares several installations, each has a file over these.
"""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from shardpost.checkout import DOT_ENV
from shardpost.errors import UsageError
from shardpost.settings.forms import STORE, parse_installations, read_text
from shardpost.settings.values import Settings
from shardpost.settings.variables import (
    CLIENT_PREFIX,
    PREFIX,
    client_name,
    client_problems,
    store_of,
    store_problems,
    topic_variable,
    unknown_name,
)
from shardpost.values.topic_names import TopicName

log = logging.getLogger(__name__)

# docker compose reads the same file, scripts/cluster-env writes into it what docker-compose.yml
# asks for, and an object store has AWS's variables.
_OF_OTHERS = ("COMPOSE_", "DOCKER_", "CLUSTER_", "AWS_")


@dataclass
class DotEnv:
    """{variable: value}, {variable: its line and file}, and what is wrong, each with its line."""

    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def where(self, name: str) -> str:
        """Return where a variable is set, as an addition to its name."""
        return f" ({self.places[name]})" if name in self.places else ""


def read_dot_env(path: Path, default: str | None = "") -> DotEnv:
    """Return what the file has; empty where there is none. UsageError if it cannot be read."""
    file = DotEnv()
    text = read_text(path, default=default)  # none where remote workers import from an archive
    if not text:
        return file
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    valid = ""
    for line in parse_stream(StringIO(text)):
        original = line.original.string  # the empty lines before it are in it
        empty = original[: len(original) - len(original.lstrip())].splitlines()
        number = line.original.line + len(empty)
        if line.error or (line.key is not None and line.value is None):
            file.problems.append(f"line {number} of {path}: expected NAME=value")
        elif line.key is not None:
            file.places[line.key] = f"line {number} of {path}"
            valid += original
    # Values may name other variables, as in ${HOME}. It logs what it takes for no line.
    values = dotenv_values(stream=StringIO(valid))
    file.values = {name: value or "" for name, value in values.items()}
    file.problems += [
        f"{place}: expected a setting, which begins with {PREFIX}, found {name}:"
        " set other variables in the environment"
        for name, place in file.places.items()
        if not name.upper().startswith((PREFIX, *_OF_OTHERS))
    ]
    return file


_FIELDS = frozenset(Settings.model_fields) - {"kafka", "store", "topics"}
_TOPICS = {topic_variable(name): name for name in get_args(TopicName)}
VARIABLES = sorted({*(PREFIX + field.upper() for field in _FIELDS), *_TOPICS})
_LOGIN = re.compile(r"[^\s'\"/,]+:[^\s'\",]*@")  # of a URL: it is not shown
_MESSAGE_BEGINS = "Value error, "
# {type of Pydantic's error: what was expected}, where its own text speaks of Python.
_EXPECTED = {
    "int_parsing": "expected a whole number",
    "float_parsing": "expected a number",
    "bool_parsing": "expected true or false",
}


INSTALLATIONS, SERVERS = PREFIX + "INSTALLATIONS", PREFIX + "BOOTSTRAP_SERVERS"


@dataclass(frozen=True)
class Declared:
    """One installation: where its settings are read, and its names in Airflow.

    Without SHARDPOST_INSTALLATIONS there is one, which has no name. One that has a name and no file
    is that of a job: its environment has all settings, and `.env` does not count.
    """

    name: str = ""
    file: Path | None = None

    def id(self, name: str) -> str:
        """Return what a DAG or an asset of ours is called in Airflow: `us_weekly_email`."""
        return f"{self.name}_{name}" if self.name else name

    @property
    def path(self) -> str:
        """The path of its page, below Airflow's: `/shardpost/us`."""
        return f"/shardpost/{self.name}".rstrip("/")

    def tags(self, *tags: str) -> list[str]:
        """Return the tags of a DAG."""
        return [*tags, self.name] if self.name else [*tags]

    def load(self, more: Mapping[str, str] | None = None) -> Settings:
        """Return the settings, read once, or read with more variables below the environment.

        UsageError names all that are wrong, or what another installation has, too.
        """
        return self._read({**more, **os.environ}) if more else _of_this_process(self)

    def given(self) -> dict[str, str]:
        """Return {variable: text} of what decides, also variables of others.

        Those of the environment, also empty ones, which mean the default; of files only those with
        a value, since a copy of the example names all.
        """
        found = self.variables(os.environ)
        return {
            name: text
            for name, text in found.values.items()
            if text or (name in os.environ and name not in found.places)
        }

    def one(self, field: str) -> Any:
        """Return one of the settings; UsageError if that is wrong.

        Others that are wrong do not count, and fail tasks: with them, a DAG would go that is
        parsed. Of one with a name also this one does, with its default in the DAG: its file breaks
        no DAG of another installation.
        """
        name, declared = PREFIX + field.upper(), Settings.model_fields[field]
        try:
            found = self.variables(os.environ)
            text = found.values.get(name)
            if not text:
                return declared.default
            return TypeAdapter(declared.rebuild_annotation()).validate_python(text)
        except ValidationError as error:
            [problem] = error.errors()
            wrong = UsageError(_problem({**problem, "loc": (field,)}, found))
        except UsageError as error:
            wrong = error
        if not self.name:
            raise wrong from None
        log.error("installation %s: %s; its tasks will fail", self.name, wrong)
        return declared.default

    def variables(self, environ: Mapping[str, str]) -> DotEnv:
        """Return all variables, those of the installation's file over the environment's."""
        found = DotEnv() if self.name and self.file is None else read_dot_env(DOT_ENV)
        found.values |= environ
        for name in environ:
            found.places.pop(name, None)
        if self.file is not None:
            own = read_dot_env(self.file, default=None)
            found.values |= own.values
            found.places |= own.places
            found.problems += own.problems
        if self.name:
            found.values[INSTALLATIONS] = self.name
        return found

    def _read(self, environ: Mapping[str, str]) -> Settings:
        settings = _parsed(self.variables(environ))
        for other in installations():
            if other.name != self.name and (shared := self._shared_with(other, settings)):
                raise UsageError(
                    f"installations {self.name} and {other.name} have the same {shared}:"
                    f" set another one in {self.file}"
                )
        return settings

    def _shared_with(self, other: "Declared", settings: Settings) -> str | None:
        try:
            theirs = _parsed(other.variables(os.environ))
        except UsageError:  # it does not run, and is compared once it does
            return None
        # By what is declared: where neither names servers, both have those of one connection.
        mine, others = ({*one.given().get(SERVERS, "").split(",")} for one in (self, other))
        return settings.shared_with(theirs, is_same_kafka=bool(mine & others))


def installations(environ: Mapping[str, str] | None = None) -> list[Declared]:
    """Return those of SHARDPOST_INSTALLATIONS, or the one without a name; UsageError if wrong."""
    text = {**read_dot_env(DOT_ENV).values, **(os.environ if environ is None else environ)}
    try:
        found = parse_installations(text.get(INSTALLATIONS) or "")
    except ValueError as error:
        raise UsageError(f"setting {INSTALLATIONS}={text[INSTALLATIONS]!r}: {error}") from None
    return [Declared(name, file) for name, file in found.items()] or [Declared()]


def declared(name: str | None = None, environ: Mapping[str, str] | None = None) -> Declared:
    """Return the installation of that name, or the only one; UsageError where there is none."""
    found = installations(environ)
    names = ", ".join(one.name for one in found)
    if name is None and len(found) > 1:
        raise UsageError(
            f"expected one installation, found {names} ({INSTALLATIONS}): to act for"
            f" {found[0].name}, set {INSTALLATIONS}={found[0].name}={found[0].file}"
        )
    for one in found:
        if name in (None, one.name):
            return one
    raise UsageError(f"expected an installation of {INSTALLATIONS} ({names}), found {name!r}")


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process, read once, or those of the given variables.

    The environment takes precedence over `.env`. UsageError names all settings that are wrong.
    """
    if environ is None:
        return declared().load()
    return _parsed(declared(environ=environ).variables(environ))


@cache
def _of_this_process(own: Declared) -> Settings:
    return own._read(os.environ)


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the environment of a process with these settings, and those of no other one."""
    others = {name for name in os.environ if name.startswith(PREFIX) and settings.installations}
    return {n: text for n, text in os.environ.items() if n not in others} | settings.environ()


def one(field: str) -> Any:
    """Return one of the settings of this process; UsageError if that is wrong."""
    return declared().one(field)


def _parsed(file: DotEnv) -> Settings:
    given = {n: value for n, value in file.values.items() if n.upper().startswith(PREFIX)}
    values: dict[str, str] = {}
    client: dict[str, str] = {}
    topics: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in given.items():
        if name.startswith(CLIENT_PREFIX):
            client |= {client_name(name): value} if value else {}
        elif topic := _TOPICS.get(name):
            topics |= {topic: value} if value else {}
        elif (field := name.removeprefix(PREFIX).lower()) in _FIELDS and name.isupper():
            values |= {field: value} if value else {}
        else:
            unknown.append(unknown_name(name, VARIABLES) + file.where(name))
    on_store = values.get("tables", "").startswith(STORE)
    store = store_of(file.values) if on_store else {}
    wrong_store = store_problems(store) if on_store else []
    maps = {"kafka": client, "store": store, "topics": topics}
    problems = [*file.problems, *unknown]
    try:
        settings = Settings.model_validate({**values, **maps})
    except ValidationError as error:
        settings = None
        problems += [_problem(problem, file) for problem in error.errors()]
    problems += [*wrong_store, *client_problems(client)]
    if settings is None or problems:
        raise UsageError("; ".join(problems))
    return settings


def _problem(error: ErrorDetails, file: DotEnv) -> str:
    """Return what is wrong with one setting; a secret, which has no `repr`, is not shown."""
    field, given = str(error["loc"][0]), error["input"]
    name = PREFIX + field.upper()
    if field == "topics":
        topic = error.get("ctx", {}).get("name") or str(error["loc"][1])
        name = topic_variable(topic)
        given = given[topic] if isinstance(given, dict) else given
    value = f"={given!r}" if Settings.model_fields[field].repr and given is not None else ""
    message = _EXPECTED.get(error["type"]) or error["msg"].removeprefix(_MESSAGE_BEGINS)
    return _LOGIN.sub("****@", f"setting {name}{value}{file.where(name)}: {message}")
