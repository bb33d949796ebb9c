"""Forms and addresses made of a command's options: names, choices, bounds and texts are click's.

A model says which options it takes, and what is read of each; what may be given, and what a form
says of it, is described once, where the command is.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from click import Choice, Command, Context, Option, UsageError
from pydantic import BaseModel, ValidationInfo, field_validator, model_validator

# Characters of what was given, in an error.
LONGEST_FOUND = 50


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
            said = error.message
            if isinstance(option.type, Choice):
                choices = ", ".join(map(str, option.type.choices))
                said = f"expected one of {choices}, found {str(given)[:LONGEST_FOUND]!r}"
            raise ValueError(said) from None


class TypedForm(CommandForm):
    """The same as a form sends it: a field that was left blank is not given."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, sent: dict[str, Any]) -> dict[str, Any]:
        return {name: text for name, text in sent.items() if text != ""}


def fields_of(command: Command, names: Iterable[str]) -> list[Option]:
    """Return the options of a command that are fields of a form."""
    options = _options(command)
    return [options[name] for name in names]


def _options(command: Command) -> dict[str, Option]:
    return {one.name: one for one in command.params if isinstance(one, Option) and one.name}
