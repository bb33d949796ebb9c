"""Text files that people write: settings, declared topics, mail templates."""

from pathlib import Path

from shardpost.errors import UsageError


def read_text(path: Path, *, advice: str = "", default: str | None = None) -> str:
    """Return the text of a file, without the mark that some editors begin it with.

    `default`, if given, where there is no such file; UsageError if it cannot be read, with `advice`
    on what to do.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: expected text in UTF-8, found other bytes at byte {error.start}:"
            " save the file as UTF-8"
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path}: cannot be read: expected a file, found a folder") from None
    except OSError as error:
        if default is not None and isinstance(error, FileNotFoundError | NotADirectoryError):
            return default
        said = f"{path}: cannot be read: {error.strerror}"
        raise UsageError(f"{said}: {advice}" if advice else said) from None
