"""Reading the settings from the environment and the file `.env`, and what is wrong with them."""

import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from shardpost.checkout import DOT_ENV, HOME
from shardpost.errors import UsageError
from shardpost.settings import variables
from shardpost.settings.forms import STORE, connection_ids, read_text
from shardpost.settings.values import Settings
from shardpost.values.retry_settings import split_names
from shardpost.values.topic_names import INPUTS, TopicName
from shardpost.wording import expected

log = logging.getLogger(__name__)

# docker compose reads the same file, scripts/cluster-env writes into it what docker-compose.yml
# asks for, and an object store has AWS's variables.
_OF_OTHERS = ("COMPOSE_", "DOCKER_", "CLUSTER_", "AWS_")


@dataclass
class DotEnv:
    """{variable: value}, {variable: its line}, and what is wrong, each with its line."""

    path: Path
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def where(self, name: str) -> str:
        """Return where a variable is set, as an addition to its name."""
        if name in self.lines:
            return f" (line {self.lines[name]} of {self.path})"
        return " (environment)" if name in os.environ else ""


def read_dot_env(path: Path, default: str | None = "") -> DotEnv:
    """Return what the file has; empty where there is none. UsageError if it cannot be read."""
    file = DotEnv(path)
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
            file.lines[line.key] = number
            valid += original
    # Values may name other variables, as in ${HOME}. It logs what it takes for no line.
    values = dotenv_values(stream=StringIO(valid))
    file.values = {name: value or "" for name, value in values.items()}
    file.problems += [
        f"line {number} of {path}: expected a setting, which begins with {variables.PREFIX},"
        f" found {name}: set other variables in the environment"
        for name, number in file.lines.items()
        if not name.upper().startswith((variables.PREFIX, *_OF_OTHERS))
    ]
    return file


_FIELDS = frozenset(Settings.model_fields) - {"kafka", "store", "topics"}
_TOPICS = {variables.topic_variable(name): name for name in get_args(TopicName)}
VARIABLES = sorted({*(variables.PREFIX + field.upper() for field in _FIELDS), *_TOPICS})
_LOGIN = re.compile(r"[^\s'\"/,]+:[^\s'\",]*@")  # of a URL: it is not shown


INSTALLATIONS = variables.PREFIX + "INSTALLATIONS"
_HOME, _TABLES, _SERVERS, _FOREIGN = (
    variables.PREFIX + name
    for name in ("HOME", "TABLES", "BOOTSTRAP_SERVERS", "FOREIGN_DEAD_LETTERS")
)
_DECLARED = re.compile(r"([a-z][a-z0-9-]{0,29})(?:=(\S+))?")


@dataclass(frozen=True)
class Declared:
    """An installation of SHARDPOST_INSTALLATIONS; without that setting the one, without a name.

    One with a name and without a file is that of a job, whose environment has all settings.
    """

    name: str = ""
    file: Path | None = None

    def id(self, name: str) -> str:
        """Return what a DAG or an asset of ours is called in Airflow: `us_weekly_email`."""
        return f"{self.name}_{name}" if self.name else name

    def tags(self, *tags: str) -> list[str]:
        """Return the tags of a DAG."""
        return [*tags, *filter(None, [self.name])]

    def environ(self) -> dict[str, str]:
        """Return the environment, and over it what the file has, but for empty values."""
        if self.file is None:
            return {**os.environ}
        file = read_dot_env(self.file, default=None)
        if file.problems:
            raise UsageError("; ".join(file.problems))
        own = {name: text for name, text in file.values.items() if text}
        return {**os.environ, **own, INSTALLATIONS: self.name}

    def given(self) -> dict[str, str]:
        """Return {variable: text} of what decides, also variables of others.

        Those of the environment, also empty ones, which mean the default; of files only those with
        a value, since a copy of the example names all.
        """
        base = read_dot_env(DOT_ENV).values.items()
        return {name: text for name, text in base if text} | self.environ()

    def one(self, field: str) -> Any:
        """Return one of the settings; UsageError if that is wrong.

        With a name, the default: what is wrong fails tasks, and no DAG of another installation.
        """
        try:
            return one(field, self.environ())
        except UsageError as error:
            if not self.name:
                raise
            log.warning("installation %s: its tasks will fail: %s", self.name, error)
            return Settings.model_fields[field].default

    def owned(self) -> dict[str, str]:
        """Return {what one installation alone may have: its variable}."""
        given = self.given()
        topics = {given.get(of) or name: of for of, name in _TOPICS.items() if name not in INPUTS}
        topics |= dict.fromkeys(split_names(given.get(_FOREIGN, "")), _FOREIGN)
        kafka = given.get(_SERVERS) or connection_ids(self.one("connections"))["kafka"]
        found = {f"{topic} at {at}": of for topic, of in topics.items() for at in kafka.split(",")}
        home = given.get(_HOME) or str(HOME)
        return found | {home: _HOME, given.get(_TABLES) or f"{home}/tables": _TABLES}

    def load(self, more: Mapping[str, str] | None = None) -> Settings:
        """Return the settings, read once, or anew with more variables below the environment.

        UsageError names all that are wrong, or what another installation has, too.
        """
        if more is None:
            return _of_this_process(self)
        try:
            settings = load({**more, **self.environ()})
        except UsageError as error:
            raise UsageError(f"{self.file}: {error}" if self.file else str(error)) from None
        for other in {*installations()} - {self}:
            theirs = dict[str, str]()
            with suppress(UsageError):  # a file that cannot be read
                theirs = other.owned()
            if shared := [f"{of}: {name}" for name, of in self.owned().items() if name in theirs]:
                names = f"{self.name} and {other.name} have the same {', '.join(shared)}"
                raise UsageError(f"installations {names}: set others in {self.file}")
        return settings


def installations() -> list[Declared]:
    """Return those of SHARDPOST_INSTALLATIONS, or the one without a name; UsageError if wrong."""
    text = {**read_dot_env(DOT_ENV).values, **os.environ}.get(INSTALLATIONS) or ""
    entries = [_DECLARED.fullmatch(entry) for entry in text.split()]
    found = {one[1]: Path(one[2]).absolute() if one[2] else None for one in entries if one}
    if len(found) < len(entries) or (len(found) > 1 and None in found.values()):
        raise UsageError(
            f"setting {INSTALLATIONS}={text!r}: expected NAME=FILE of each, separated by blanks;"
            " names differ, and are of lower-case letters, digits and hyphens"
        )
    return [Declared(*one) for one in found.items()] or [Declared()]


def declared(name: str | None = None) -> Declared:
    """Return the installation of that name, or the only one; UsageError where there is none."""
    every = installations()
    found = [one for one in every if name in (None, one.name)]
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"expected one installation of {INSTALLATIONS} ({', '.join(one.name for one in every)}),"
        f" found {name or 'all'}: to act for one, set {INSTALLATIONS}=NAME=FILE"
    )


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process, read once, or those of the given variables.

    The environment takes precedence over `.env`. UsageError names all settings that are wrong.
    """
    if environ is None:
        return declared().load()
    return _parsed(read_dot_env(DOT_ENV), environ)


@cache
def _of_this_process(own: Declared) -> Settings:
    return own.load({})


def one(field: str, environ: Mapping[str, str] = os.environ) -> Any:
    """Return one of the settings of this process; UsageError if that is wrong.

    Others that are wrong do not count, and fail tasks: with them, a DAG would go that is parsed.
    """
    file, name = read_dot_env(DOT_ENV), variables.PREFIX + field.upper()
    text = {**file.values, **environ}.get(name)
    field_ = Settings.model_fields[field]
    if not text:
        return field_.default
    if name in environ:
        file.lines.pop(name, None)
    try:
        return TypeAdapter(field_.rebuild_annotation()).validate_python(text)
    except ValidationError as error:
        [problem] = error.errors()
        raise UsageError(_problem({**problem, "loc": (field,)}, file)) from None


def _parsed(file: DotEnv, environ: Mapping[str, str]) -> Settings:
    for name in environ:
        file.lines.pop(name, None)  # it comes from the environment
    given = {
        name: value
        for name, value in {**file.values, **environ}.items()
        if name.upper().startswith(variables.PREFIX)
    }
    values: dict[str, str] = {}
    client: dict[str, str] = {}
    topics: dict[str, str] = {}
    unknown: list[str] = []
    for name, value in given.items():
        if name.startswith(variables.CLIENT_PREFIX):
            client |= {variables.client_name(name): value} if value else {}
        elif topic := _TOPICS.get(name):
            topics |= {topic: value} if value else {}
        elif (field := name.removeprefix(variables.PREFIX).lower()) in _FIELDS and name.isupper():
            values |= {field: value} if value else {}
        else:
            unknown.append(variables.unknown_name(name, VARIABLES) + file.where(name))
    on_store = values.get("tables", "").startswith(STORE)
    store = variables.store_of({**file.values, **environ}) if on_store else {}
    wrong_store = variables.store_problems(store) if on_store else []
    maps = {"kafka": client, "store": store, "topics": topics}
    problems = [*file.problems, *unknown]
    try:
        settings = Settings.model_validate({**values, **maps})
    except ValidationError as error:
        settings = None
        problems += [_problem(problem, file) for problem in error.errors()]
    problems += [*wrong_store, *variables.client_problems(client)]
    if settings is None or problems:
        raise UsageError("; ".join(problems))
    return settings


def _problem(error: ErrorDetails, file: DotEnv) -> str:
    """Return what is wrong with one setting; a secret, which has no `repr`, is not shown."""
    field, given = str(error["loc"][0]), error["input"]
    name = variables.PREFIX + field.upper()
    if field == "topics":
        topic = error.get("ctx", {}).get("name") or str(error["loc"][1])
        name = variables.topic_variable(topic)
        given = given[topic] if isinstance(given, dict) else given
    value = f"={given!r}" if Settings.model_fields[field].repr and given is not None else ""
    return _LOGIN.sub("****@", f"setting {name}{value}{file.where(name)}: {expected(error)}")
