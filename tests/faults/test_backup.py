"""Backup and restore of whole brokers: under load, and when something ends in the middle of it.

The heavy one is at full speed: `AMQPD_HEAVY=1 pytest -s tests/faults/test_backup.py -k fifty_thousand`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from amqpd.__main__ import run
from tests.harness.slow import slow

from ..clients.broker_process import REPOSITORY, BrokerProcess
from .flood import Flood, Prober, numbers_in

MakeBroker = Callable[..., BrokerProcess]
QUEUE = "flooded"
BODY_BYTES = 64
SLOW = ("--rate", "0.1")
"""Megabytes a second: a backup that goes on until something ends it."""

pytestmark = pytest.mark.usefixtures("only_amqpd")


def amqpd(broker: BrokerProcess, *words: object) -> subprocess.Popen[str]:
    """A command on the broker's data directory."""
    return subprocess.Popen(
        [sys.executable, "-m", "amqpd", "--data-dir", str(broker.data_dir), *map(str, words)],
        env=broker.child_environment(),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that a shell has begun in the background have SIGINT ignored, and hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )


def ended(command: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    out, err = command.communicate(timeout=300)
    return command.returncode, out, err


def done(broker: BrokerProcess, *words: object) -> str:
    """Its standard output. In this process, which has everything imported already."""
    with (
        mock.patch.dict(os.environ, broker.child_environment(), clear=True),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = run(["--data-dir", str(broker.data_dir), *map(str, words)])
    assert code == 0, err.getvalue()
    return out.getvalue()


@contextlib.contextmanager
def flooded(broker: BrokerProcess, confirmed: int, body_bytes: int = BODY_BYTES) -> Iterator[Flood]:
    flood = Flood(broker.port, QUEUE, body_bytes=body_bytes)
    flood.start()
    flood.wait(confirmed)
    yield flood
    flood.stop()


def test_everything_confirmed_before_it_began_is_in_it(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker, elsewhere = make_broker(), make_broker()
    broker.start()
    with flooded(broker, 20_000) as flood:
        before = flood.confirmed
        said = json.loads(done(broker, "backup", tmp_path / "backup", "--json"))
        flood.wait(flood.confirmed + 1)
    assert said["journal"]["index"] > 0
    assert done(elsewhere, "restore", tmp_path / "backup").startswith("restored: ")
    elsewhere.environment["AMQPD_NODE_NAME"] = "look"  # beside its original
    elsewhere.start()
    restored = numbers_in(elsewhere.port, QUEUE, BODY_BYTES)
    assert before <= len(restored) <= flood.sent
    assert restored == list(range(len(restored)))
    # Its audit log is a new book, and it goes on as any broker.
    assert elsewhere.terminate() == 0
    assert json.loads((elsewhere.data_dir / "audit" / "incarnations.json").read_text())["incarnation"] == 1
    assert "level=warn" not in elsewhere.log
    assert "level=error" not in elsewhere.log
    # The one that was copied noticed nothing.
    assert numbers_in(broker.port, QUEUE, BODY_BYTES) == list(range(flood.confirmed))
    broker.wait_log("backup complete")


@pytest.mark.slow
@pytest.mark.parametrize("number", [slow(signal.SIGTERM), signal.SIGKILL])
def test_a_broker_that_ends_meanwhile_leaves_no_backup(
    make_broker: MakeBroker, tmp_path: Path, number: signal.Signals
) -> None:
    broker = make_broker()
    broker.start()
    with flooded(broker, 100_000):
        pass
    target = tmp_path / "backup"
    command = amqpd(broker, "backup", target, *SLOW)
    assert command.stderr is not None
    while not command.stderr.readline().startswith("copying journal.db"):
        assert command.poll() is None
    broker.send_signal(number)
    assert broker.wait() == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    code, out, err = ended(command)
    assert (code, out) == (1, "")
    assert "the broker was stopped: the backup was given up" in err or (
        "lost the broker on " in err and "is a backup only if it has a backup.json" in err
    ), err
    assert "Traceback" not in err + broker.log
    assert target.exists() == (number == signal.SIGKILL)
    code, out, err = ended(amqpd(make_broker(), "restore", target))
    assert (code, out) == (1, "")
    assert "is no complete backup" in err
    # And when it has stopped, the same command makes it by itself.
    target = tmp_path / "second"
    assert done(broker, "backup", target).startswith(f"backup complete: {target}")
    assert done(broker, "restore", target, "--replace").startswith("what was there before is in ")
    broker.start()
    assert numbers_in(broker.port, QUEUE, BODY_BYTES)[:100_000] == list(range(100_000))


@pytest.mark.slow
def test_one_backup_at_a_time_and_a_client_that_leaves_ends_its_own(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker()
    broker.start()
    with flooded(broker, 100_000):
        pass
    first = amqpd(broker, "backup", tmp_path / "first", *SLOW)
    broker.wait_log("backup begun")
    code, out, err = ended(amqpd(broker, "backup", tmp_path / "second"))
    assert (code, out) == (1, "")
    assert f"a backup to {tmp_path / 'first'} is under way: wait until it has ended" in err
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    broker.wait_log("backup failed.*the client that asked for the backup has left")
    assert not (tmp_path / "first").exists()
    # Nor does a target that cannot be written hurt the broker.
    code, out, err = ended(amqpd(broker, "backup", "/sys/backup"))
    assert (code, out) == (1, "")
    assert "amqpd: cannot write /sys/backup: " in err
    done(broker, "backup", tmp_path / "second")
    assert "Traceback" not in broker.log


@pytest.mark.heavy
def test_at_fifty_thousand_confirms_a_second(make_broker: MakeBroker, tmp_path: Path) -> None:
    """A gigabyte or so; what is confirmed before it begins is there, and confirms keep coming."""
    broker, elsewhere = make_broker(), make_broker()
    broker.start()
    body_bytes = 200
    with flooded(broker, 3_000_000, body_bytes) as flood:
        prober = Prober(broker.port)
        prober.start()
        began, before, flood.longest_s = time.monotonic(), flood.confirmed, 0.0
        code, out, err = ended(amqpd(broker, "backup", tmp_path / "backup"))
        seconds = time.monotonic() - began
        rate = (flood.confirmed - before) / seconds
        took = prober.between(began, began + seconds)
        prober.stop()
    assert code == 0, err
    print(f"\n{out}{rate:,.0f} confirms a second during {seconds:.1f} s; longest without one {flood.longest_s:.2f} s")
    print(f"one message: median {took[len(took) // 2] * 1e3:.1f} ms, 99th {took[len(took) * 99 // 100] * 1e3:.1f} ms")
    assert rate >= 50_000
    done(elsewhere, "restore", tmp_path / "backup")
    elsewhere.start()
    restored = numbers_in(elsewhere.port, QUEUE, body_bytes)
    print(f"{before:,} were confirmed before, {len(restored):,} are there")
    assert before <= len(restored) <= flood.sent
    assert restored == list(range(len(restored)))
