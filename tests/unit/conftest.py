"""Unit tests open no socket: one that tries fails, and says where it wanted to go."""

import socket
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _closed_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_socket: socket.socket, address: Any) -> None:
        raise AssertionError(f"a unit test wanted to connect to {address}: move it to another tier")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
