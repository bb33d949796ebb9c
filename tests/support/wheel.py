"""The package as pip installs it: a wheel of this checkout in a folder, and Python that has it."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from shardpost.checkout import CHECKOUT


def install(folder: Path) -> Path:
    """Build the wheel and install it alone; return where. What it depends on is this Python's."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    command = [
        *(str(Path(sys.executable).parent / "uv"), "pip", "install", "--offline", "--no-deps"),
        *("--python", sys.executable, "--target", str(folder / "site"), str(wheel)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "site"


def interpreter(folder: Path) -> None:
    """Make a Python that has all packages of this one but the checkout.

    Two installations of the package would register each plugin twice.
    """
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "shardpost" not in package.name:
            (packages / package.name).symlink_to(package)


def environment(site: Path, home: Path) -> dict[str, str]:
    """Return the variables of a process that has the package, in a home of its own, and no more."""
    home.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    java = {"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}
    return {"PATH": path, "PYTHONPATH": str(site), "HOME": str(home), **java}
