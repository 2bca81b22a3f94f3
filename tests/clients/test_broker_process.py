"""The process fixture itself: restart on the same port and data, signals, the log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .broker_process import BrokerFailed, BrokerProcess


class Script(BrokerProcess):
    """A stand-in that is a one-line Python program."""

    text = ""

    def command(self) -> list[str]:
        return [*self.prefix, sys.executable, "-c", self.text]


WAITS_FOR_TERM = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("READY to go", flush=True)
signal.pause()
"""


def test_start_waits_for_ready_and_terminate_gives_the_exit_code(tmp_path: Path) -> None:
    broker = Script(tmp_path)
    broker.text = WAITS_FOR_TERM
    broker.start()
    assert broker.running
    assert broker.terminate(20) == 7
    broker.restart()
    assert broker.log.count("READY") == 2
    broker.kill()
    assert not broker.running


def test_a_broker_that_ends_before_ready_fails_with_its_log(tmp_path: Path) -> None:
    broker = Script(tmp_path)
    broker.text = "import sys; sys.exit('no such directory')"
    with pytest.raises(BrokerFailed, match=r"exit code 1.*\n.*no such directory"):
        broker.start()


def test_a_broker_that_never_gets_ready_is_killed_at_the_deadline(tmp_path: Path) -> None:
    broker = Script(tmp_path)
    broker.text = "import signal; signal.pause()"
    with pytest.raises(BrokerFailed, match=r"no READY within 0\.3 s"):
        broker.start(0.3)
    assert not broker.running


def test_a_ready_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    broker = Script(tmp_path)
    broker.text = WAITS_FOR_TERM
    broker.start()
    broker.kill()
    broker.text = "print('started')"
    with pytest.raises(BrokerFailed, match="the broker ended"):
        broker.start()


def test_settings_of_the_caller_do_not_leak_into_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQPD_TEST_URL", "amqp://elsewhere")
    broker = Script(tmp_path, environment={"AMQPD_LOG_LEVEL": "debug"})
    broker.text = "import os; print(sorted(n for n in os.environ if n.startswith('AMQPD_')), 'READY')"
    broker.start()
    broker.wait()
    assert "['AMQPD_HTTP_ENABLED', 'AMQPD_LOG_LEVEL'] READY" in broker.log, "the harness's own, and the test's"
