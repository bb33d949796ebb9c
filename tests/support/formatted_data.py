"""Data folders of brokers that are formatted once: a JVM, which takes as long as a broker's start.

Later ones of a process of tests are copies, each at ports of its own.
"""

import shutil
import tempfile
from pathlib import Path

import pytest

from shardpost.embedded import broker
from shardpost.settings import Settings


def format_once(patch: pytest.MonkeyPatch, template: Path) -> None:
    """Have brokers that start in this process get a copy of the first one's empty folder."""
    configure = broker.configure

    def configured(settings: Settings, java: str) -> None:
        data = settings.folder("kafka") / "data"
        is_new = not data.exists()
        if is_new and template.exists():
            shutil.copytree(template, data)
        configure(settings, java)
        if is_new and not template.exists():
            beside = Path(tempfile.mkdtemp(dir=template.parent)) / template.name
            shutil.copytree(data, beside).rename(template)

    patch.setattr(broker, "configure", configured)
