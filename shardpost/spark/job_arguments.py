"""The arguments of every job."""

from argparse import ArgumentParser
from pathlib import Path


def job_parser(description: str | None) -> ArgumentParser:
    """Return a parser with the argument that all jobs have: `--result`."""
    made = ArgumentParser(description=description)
    made.add_argument("--result", type=Path, help="file for the JSON result")
    return made
