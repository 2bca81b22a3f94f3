"""Names that clients chose, with all that they may have in them: in the log, in what commands print, in files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from amqpd.vocabulary.escapes import UNSAFE

from .broker_process import REPOSITORY, BrokerProcess
from .wire import CAPABILITIES, PROTOCOL_HEADER, Wire, frame_bytes, short_string

CLEAR = "\x1b[2J"
CONTROLS = f"a\x9b31m\u202e{CLEAR}\x7f\u2028b"
# queue.declare, durable: a table with one entry, whose name is no UTF-8.
TABLE = b"\x04x\xff\x1b\xc3t\x01"
DECLARE = b"\x00\x32\x00\x0a\x00\x00%s\x02" + len(TABLE).to_bytes(4, "big") + TABLE
ARGUMENTS = {"x\udcff\x1b\udcc3": True}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("hostile") / "data")
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture(scope="module")
def named(broker: BrokerProcess) -> Iterator[Wire]:
    """A connection that has such names for everything."""
    with Wire(broker.port) as wire:
        wire.send_bytes(PROTOCOL_HEADER)
        wire.read_method()
        properties = {"capabilities": CAPABILITIES, "connection_name": CONTROLS, "product": CONTROLS}
        assert isinstance(
            wire.call(commands.Connection.StartOk(properties, "PLAIN", "\0guest\0guest")), commands.Connection.Tune
        )
        wire.send(commands.Connection.TuneOk(2047, 131072, 0))
        assert isinstance(wire.call(commands.Connection.Open("/")), commands.Connection.OpenOk)
        wire.open_channel()
        wire.send_bytes(frame_bytes(1, DECLARE % short_string(CONTROLS)))
        assert isinstance(wire.read_method()[1], commands.Queue.DeclareOk)
        yield wire


def run(broker: BrokerProcess, *words: str, data_dir: Path | None = None) -> str:
    line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(data_dir or broker.data_dir)]
    environment = {**broker.child_environment(), "PYTHONUTF8": "1"}
    done = subprocess.run(line, cwd=REPOSITORY, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_a_login_and_an_error_leave_one_safe_line_each_in_the_log(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire, pytest.raises(AssertionError, match="403"):
        wire.open(user=f"mallory\r{CLEAR}", password="wrong")
    line = broker.wait_log("login_refused")
    assert r"mallory\r\u001b[2J" in line
    with Wire(broker.port) as wire, pytest.raises(AssertionError, match="530"):
        wire.open(vhost=CONTROLS + "\ntime=2026-01-01T00:00:00Z level=critical")
    line = broker.wait_log("connection_error")
    assert line.startswith("time=")
    for line in broker.log.split("\n"):
        assert not UNSAFE.search(line)
        assert not re.match("time=2026-01-01T00:00:00Z", line)


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize(
    "words",
    [("queue", "list"), ("connection", "list"), ("queue", "show", CONTROLS), ("binding", "list"), ("status",)],
)
def test_what_a_command_prints_does_nothing_to_a_terminal(broker: BrokerProcess, words: tuple[str, ...]) -> None:
    printed = run(broker, *words)
    assert not UNSAFE.search(printed.replace("\n", ""))
    if words[0] in ("queue", "connection"):
        assert r"a\u009b31m\u202e\u001b[2J\u007f\u2028b" in printed


def rows(broker: BrokerProcess, *words: str) -> list[dict[str, Any]]:
    printed = run(broker, *words, "--json")
    assert not UNSAFE.search(printed.replace("\n", ""))
    found: list[dict[str, Any]] = json.loads(printed)
    return found


@pytest.mark.usefixtures("named")
def test_json_has_each_name_exactly(broker: BrokerProcess) -> None:
    (queue,) = rows(broker, "queue", "list")
    assert (queue["name"], queue["arguments"]) == (CONTROLS, ARGUMENTS)
    (connection,) = rows(broker, "connection", "list")
    assert connection["client_properties"]["connection_name"] == CONTROLS


@pytest.mark.slow
@pytest.mark.usefixtures("named")
def test_definitions_keep_names_that_are_no_text(broker: BrokerProcess, tmp_path: Path) -> None:
    exported, again = tmp_path / "all.json", tmp_path / "again.json"
    run(broker, "definitions", "export", str(exported))
    assert run(broker, "definitions", "export", "-") == exported.read_text()
    other = BrokerProcess(tmp_path / "other")
    try:
        other.start()
        run(other, "definitions", "import", str(exported))
        other.restart()
        run(other, "definitions", "export", str(again))
        assert again.read_text() == exported.read_text()
        with Wire(other.port) as wire:
            wire.open()
            wire.open_channel()
            wire.send_bytes(frame_bytes(1, DECLARE % short_string(CONTROLS)))  # equal to the last octet, or 406
            assert isinstance(wire.read_method()[1], commands.Queue.DeclareOk)
        assert other.terminate() == 0
    finally:
        other.close()
