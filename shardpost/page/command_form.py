"""Forms and addresses made of a command's options: names, choices, bounds and texts are click's.

A model says which options it takes, and what is read of each; what may be given, and what a form
says of it, is described once, where the command is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from click import Choice, Command, Context, Option, UsageError
from pydantic import BaseModel, ValidationInfo, field_validator, model_validator

# Characters of what was given, in an error.
LONGEST_FOUND = 50


@dataclass(frozen=True)
class FormField:
    """An option as a form has it: a box to tick, one of some choices, or else a text."""

    name: str
    said: str
    is_flag: bool
    choices: tuple[str, ...]

    @property
    def title(self) -> str:
        """Its name as a label has it."""
        return self.name.replace("_", " ").capitalize()


class CommandForm(BaseModel):
    """Options of a command as an address has them; one that is given and empty is refused."""

    command: ClassVar[Command]

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, given: Any, info: ValidationInfo) -> Any:
        option = _options(cls.command).get(info.field_name or "")
        if option is None:
            return given
        if given == "":
            raise ValueError("expected a value, found none")
        if option.is_flag or option.multiple:  # of many, here a text with a line for each
            return given
        try:
            return option.process_value(Context(cls.command), given)
        except UsageError as error:
            choices = ", ".join(_choices(option))
            found = repr(str(given)[:LONGEST_FOUND])
            said = f"expected one of {choices}, found {found}" if choices else error.message
            raise ValueError(said) from None


class TypedForm(CommandForm):
    """The same as a form sends it: a field that was left blank is not given."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, sent: dict[str, Any]) -> dict[str, Any]:
        return {name: text for name, text in sent.items() if text != ""}


def fields_of(command: Command, names: Iterable[str]) -> list[FormField]:
    """Return the fields of a form that are options of a command."""
    options = _options(command)
    chosen = ((name, options[name]) for name in names)
    return [FormField(name, one.help or "", one.is_flag, _choices(one)) for name, one in chosen]


def _choices(option: Option) -> tuple[str, ...]:
    return tuple(map(str, option.type.choices)) if isinstance(option.type, Choice) else ()


def _options(command: Command) -> dict[str, Option]:
    return {one.name: one for one in command.params if isinstance(one, Option) and one.name}
