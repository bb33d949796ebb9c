"""The options of a command as one typed value, where they are many."""

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def grouped(kind: type[T]) -> Callable[[Callable[Concatenate[T, ...], int]], Callable[..., int]]:
    """Pass the options that are fields of a dataclass as one value, the first argument."""
    names = [field.name for field in fields(kind)]

    def decorate(function: Callable[Concatenate[T, ...], int]) -> Callable[..., int]:
        @wraps(function)
        def command(**options: Any) -> int:
            value = kind(**{name: options.pop(name) for name in names})
            return function(value, **options)

        return command

    return decorate
