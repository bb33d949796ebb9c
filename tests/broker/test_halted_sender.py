"""A sender that is halted in front of the mail server while another run takes over its shard."""

import os
import signal
import subprocess
import sys
import time

import pytest

from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from shardpost.weekly_email.ledger_topic import FRESH_SECONDS, Ledger, seconds_since_boot
from shardpost.weekly_email.model.week_report import ShardReport
from tests.broker.test_sending import CLIENTS, SHARD, each_once, quick, run, to
from tests.support.mail_server import mail_server
from tests.support.members import WEEK


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "alone"])
def test_a_sender_that_was_halted_amid_a_mail_sends_it_only_if_the_shard_is_still_its_own(
    settings: Settings, *, is_fenced: bool
) -> None:
    apply_topics(settings)
    senders: list[subprocess.Popen[str]] = []
    halted: list[str] = []

    def script(stage: str, recipient: str) -> None:
        if (stage, recipient) != ("DATA", to("client3")) or halted:
            return
        halted.append(recipient)
        senders[0].send_signal(signal.SIGSTOP)
        if is_fenced:
            Ledger(settings, WEEK, SHARD).open()
        since = seconds_since_boot()
        while seconds_since_boot() - since <= FRESH_SECONDS:
            time.sleep(0.1)
        senders[0].send_signal(signal.SIGCONT)

    with mail_server(script) as server:
        settings = quick(
            settings, smtp_port=server.port, mail_connections=1, smtp_data_timeout=60.0
        )
        command = [sys.executable, "-m", "tests.support.shard_process"]
        environ = os.environ | settings.environ()
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as sender:
            senders.append(sender)
            said, _ = sender.communicate()
        assert halted
        if is_fenced:
            assert "a newer run has taken over" in said
            assert each_once(server, CLIENTS[:3])
            after = run(settings, server)
            assert after == ShardReport(SHARD, sent=9, unknown=1, unknown_clients=("client3",))
        else:
            assert said == "None"
            assert each_once(server)
