"""`shardpost letters redrive`."""

from typing import BinaryIO

import click

from shardpost.commands.letters.redrive_or_discard import (
    ParkedOptions,
    parked_options,
    redrive_or_discard,
)
from shardpost.dead_letters.model.redrive_request import VALUE_BYTES
from shardpost.errors import UsageError


@click.command("redrive")
@click.option(
    "--value", type=click.File("rb"), help="Send the content of this file; with one --id."
)
@click.option(
    "--again",
    is_flag=True,
    help="Also letters that one error has parked twice, which are refused without it.",
)
@parked_options
def redrive_command(options: ParkedOptions, value: BinaryIO | None, again: bool) -> int:
    """Send parked letters back to their retry topic: print the plan, or do it with --apply.

    An exhausted letter has one more attempt; failing that, it is parked again. Exit code 3: done,
    and some of the selected letters were refused.
    """
    if value is not None and len(options.ids) != 1:
        raise UsageError("--value is for one letter: name it with --id")
    new_value = _read(value) if value is not None else None
    request = options.request(is_redrive=True, allow_repeated=again, value=new_value)
    return redrive_or_discard(options, request)


def _read(file: BinaryIO) -> bytes:
    try:
        value = file.read(VALUE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--value {file.name}: cannot be read: {error.strerror}") from None
    if len(value) > VALUE_BYTES:
        size = f"expected at most {VALUE_BYTES} bytes, found more"
        raise UsageError(f"--value {file.name}: {size}; a letter cannot be larger")
    return value
