"""A broker whose standard error nobody reads."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from ..clients.broker_process import REPOSITORY, BrokerProcess
from ..clients.wire import Wire

DEADLINE_S = 60.0


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe with no space left in it, as a reader leaves it that has stopped."""
    read, write = os.pipe()
    # Another open file of the same pipe: O_NONBLOCK on `write` itself would be the broker's too.
    filler = os.open(f"/proc/self/fd/{write}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(filler, b"-" * 4096)
    except BlockingIOError:
        pass
    os.close(filler)
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


@pytest.fixture
def broker(full_pipe: tuple[int, int], tmp_path: Path) -> Iterator[tuple[BrokerProcess, subprocess.Popen[bytes]]]:
    """One that is ready, and could not say so."""
    broker = BrokerProcess(tmp_path / "data", environment={"AMQPD_DRAIN_TIMEOUT_S": "60"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.settimeout(DEADLINE_S)
        supervisor.bind(str(tmp_path / "notify"))
        environment = {**broker.child_environment(), "NOTIFY_SOCKET": str(tmp_path / "notify")}
        process = subprocess.Popen(broker.command(), env=environment, cwd=REPOSITORY, stderr=full_pipe[1])
        try:
            assert supervisor.recv(100).startswith(b"READY=1")
            yield broker, process
        finally:
            process.kill()
            process.wait()


def test_clients_go_on_and_sigterm_ends_it(broker: tuple[BrokerProcess, subprocess.Popen[bytes]]) -> None:
    with Wire(broker[0].port) as wire:
        wire.open()
        wire.open_channel()
        for number in range(100):
            # Each error is a line of some hundred bytes; 64 kB is what a pipe holds.
            wire.send(commands.Queue.Declare(queue="x" * 200, passive=True), channel=1)
            assert wire.closed(channel=1).reply_code == 404, number
        wire.close()
    broker[1].send_signal(signal.SIGTERM)
    assert broker[1].wait(DEADLINE_S) == 0


def test_a_second_signal_ends_it_at_once(broker: tuple[BrokerProcess, subprocess.Popen[bytes]]) -> None:
    with Wire(broker[0].port) as silent:
        silent.open()
        broker[1].send_signal(signal.SIGTERM)
        assert isinstance(silent.read_method()[1], commands.Connection.Close)
        code = None
        while code is None:  # the first quarter of a second counts as the same signal
            broker[1].send_signal(signal.SIGTERM)
            try:
                code = broker[1].wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        assert code not in (0, None)


def test_a_reader_who_comes_back_learns_what_is_missing(
    broker: tuple[BrokerProcess, subprocess.Popen[bytes]], full_pipe: tuple[int, int]
) -> None:
    with Wire(broker[0].port) as wire:
        wire.open()
        wire.open_channel()
        for _ in range(3_000):  # more than a megabyte of lines
            wire.send(commands.Queue.Declare(queue="x" * 250, passive=True), channel=1)
            assert wire.closed(channel=1).reply_code == 404
        with os.fdopen(os.dup(full_pipe[0]), "rb") as reader:
            while b"log lines dropped" not in (line := reader.readline()):
                assert line
        assert b"lines=" in line
