"""Images under the names that docker-compose.yml and the Dockerfile ask for, made here.

`python -m tests.support.stand_ins FOLDER`, as root, has an engine with them run until Ctrl-C.
"""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import click
import pytest
import yaml

from shardpost.checkout import CHECKOUT
from shardpost.spark.jars import jars_of
from tests.support.docker_engine import NEEDED, Engine, call

FILES = CHECKOUT / "tests" / "containers" / "stand_ins"
PYTHON = "python:3.11-slim-bookworm"
DEBIAN = "ca-certificates,python3,python3-venv,wget"
# Authorities that this machine trusts beside Debian's: builds on it reach registries through them.
AUTHORITIES = Path("/usr/local/share/ca-certificates")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
GO = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw",
    "mailpit": "github.com/axllent/mailpit",
}
LOG4J2 = """\
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c{1}: %m%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
"""


def images() -> dict[str, str]:
    """Return {name without tag and owner: image} of docker-compose.yml."""
    services = yaml.safe_load((CHECKOUT / "docker-compose.yml").read_text())["services"]
    return {
        one["image"].partition(":")[0].split("/")[-1]: one["image"] for one in services.values()
    }


def build_all(engine: Engine) -> None:
    """Build what is not there yet; minutes, the first time."""
    wanted = images()
    with ThreadPoolExecutor(1) as beside:
        programs = beside.submit(_build_programs, engine.folder / "bin", wanted)
        if not engine.has_image(PYTHON):
            _import_debian(engine)
        _build(engine, CHECKOUT, "shardpost-java", "java")
        _build(engine, CHECKOUT, wanted["shardpost"])
        programs.result()
    context = _context(engine)
    for name, target in {"kafka": "kafka", "postgres": "postgres", "versitygw": "store"}.items():
        _build(engine, context, wanted[name], target)
    _build(engine, context, wanted["mailpit"], "mailpit")


def _build(engine: Engine, context: Path, image: str, target: str = "") -> None:
    chosen = ("--target", target) if target else ()
    engine.docker("build", "--network", "host", "--tag", image, *chosen, str(context))


def _import_debian(engine: Engine) -> None:
    """Import a Debian with Python 3.11, which trusts what this machine trusts."""
    root = engine.folder / "debian"
    call("debootstrap", "--variant=minbase", f"--include={DEBIAN}", "bookworm", str(root))
    for file in AUTHORITIES.glob("*.crt"):
        shutil.copy(file, root / AUTHORITIES.relative_to("/"))
    call("chroot", str(root), "update-ca-certificates")
    (root / "etc/pip.conf").write_text(f"[global]\ncert = {BUNDLE}\n")
    tar = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(
        ["docker", "import", "-", PYTHON], stdin=tar.stdout, env=engine.environ, check=True
    )
    assert tar.wait() == 0
    shutil.rmtree(root)


def _build_programs(folder: Path, wanted: dict[str, str]) -> None:
    """Build the programs that are written in Go, at the releases that the images have."""
    for name, package in GO.items():
        if not (folder / name).exists():
            release = wanted[name].partition(":")[2]
            go = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-p=1"}
            call("go", "install", f"{package}@{release}", env=go)


def _context(engine: Engine) -> Path:
    """Return a folder with what the images of others are built of."""
    context = engine.folder / "context"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(FILES, context)
    (context / "jars").mkdir()
    for jar in jars_of("broker"):
        shutil.copy(jar, context / "jars")
    (context / "log4j2.properties").write_text(LOG4J2)
    for name in GO:
        shutil.copy(engine.folder / "bin" / name, context / name)
    return context


def serve(folder: Path) -> None:
    """Have an engine run with all images, kept in that folder, until Ctrl-C."""
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        sys.exit(f"stand_ins: expected programs on the PATH, found no {', '.join(missing)}")
    engine = Engine(folder.resolve(), f"shardpost-{os.getpid()}")
    with engine.alone():
        click.echo("stand_ins: building what is not there yet (minutes, the first time) …")
        with engine.with_registries():
            build_all(engine)
        with engine.apart():
            found = {name: engine.environ[name] for name in ("DOCKER_HOST", "DOCKER_BUILDKIT")}
            click.echo("export " + " ".join(f"{name}={value}" for name, value in found.items()))
            click.echo(f"# ports: nsenter --net=/run/netns/{engine.namespace} curl …")
            with suppress(KeyboardInterrupt):
                signal.pause()


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell's background ignores the second
        signal.signal(number, signal.default_int_handler)
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.support.stand_ins FOLDER")
    try:
        serve(Path(sys.argv[1]))
    except pytest.fail.Exception as error:  # as tests say it
        sys.exit(f"stand_ins: {error}")
