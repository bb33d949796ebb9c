"""Which process it was: this one, one that has ended, one of another machine."""

import os
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shardpost.holders import following
from shardpost.locks.process_identity import ProcessIdentity, stat_of
from shardpost.settings import load
from tests.conftest import environ
from tests.support.ended_process import ended_process
from tests.support.installed import installed


def test_this_process_is_here_and_a_later_one_of_its_pid_is_another() -> None:
    own = ProcessIdentity.own()
    assert own.is_here
    assert not own.is_gone
    assert replace(own, start=f"{own.start}0").is_gone


def test_of_another_machine_it_is_not_known_that_one_has_ended() -> None:
    ended = ended_process()
    assert ended.is_gone
    elsewhere = replace(ended, machine="another")
    assert not elsewhere.is_here
    assert not elsewhere.is_gone


def test_a_process_that_nobody_has_reaped_has_ended() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        stat = stat_of(process.pid)
        assert stat is not None
        own = replace(ProcessIdentity.own(), pid=process.pid, start=str(stat.started))
        assert not own.is_gone
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert own.is_gone


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_killed_follower_is_not_said_to_follow(tmp_path: object, *, is_ended: bool) -> None:
    settings, now = load(environ(home=tmp_path)), datetime.now(UTC)
    process = ended_process() if is_ended else ProcessIdentity.own()
    own = replace(following.begun(installed(settings).files, now), process=process)
    following.note(installed(settings).files, own)
    assert following.following(installed(settings).files, now) == (None if is_ended else own)
    elsewhere = replace(own, process=replace(process, machine="another"))
    assert elsewhere.is_there(now)
    assert not elsewhere.is_there(now + timedelta(minutes=3))


def test_what_a_clock_that_was_ahead_noted_is_not_known_to_follow(tmp_path: object) -> None:
    settings, now = load(environ(home=tmp_path)), datetime.now(UTC)
    ahead = now + timedelta(hours=1)
    following.note(installed(settings).files, following.begun(installed(settings).files, ahead))
    assert following.following(installed(settings).files, now) is None
    own = following.begun(installed(settings).files, now)
    assert own.since == now
    following.note(installed(settings).files, own)
    assert following.following(installed(settings).files, now) == own


def test_one_that_begins_is_successor_than_one_whose_clock_is_a_little_ahead(
    tmp_path: object,
) -> None:
    settings, now = load(environ(home=tmp_path)), datetime.now(UTC)
    ahead = now + timedelta(minutes=4)
    before = following.begun(installed(settings).files, ahead)
    following.note(installed(settings).files, before)
    own = following.begun(installed(settings).files, now)
    assert following.successor(installed(settings).files, own, now) is None
    following.note(installed(settings).files, own)
    assert following.successor(installed(settings).files, before, now) == own
