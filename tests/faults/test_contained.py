"""A real broker in which something breaks, beside a tenant who must not notice: what the core's tests cannot reach.

What comes in: a few lines of Python that run in the broker before it starts, and replace something of the shell with
what fails. What goes out: nothing; the tenant's messages are confirmed and come, the fault is counted, and the broker
ends with 0 when it is told to.
Not here: queues and connections (`tests/node/test_containment.py`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from pamqp import commands

from tests.harness.slow import slow, slow_but

from ..clients import address
from ..clients.broker_process import REPOSITORY, BrokerProcess, free_port
from ..clients.wire import PROTOCOL_HEADER, ClosedByBroker, Wire, publish_bytes

Basic, Confirm, Queue = commands.Basic, commands.Confirm, commands.Queue

START = "import sys; from amqpd.__main__ import main; sys.argv[0] = 'amqpd'; main()"


class BrokenBroker(BrokerProcess):
    """`breaking` runs first, in the broker's process."""

    breaking = ""

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("-m")
        return [*command[:at], "-c", f"{self.breaking}\n{START}", *command[at + 2 :]]

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "amqpd", "status", "--json", "--data-dir", str(self.data_dir)]
        done = subprocess.run(command, check=True, cwd=REPOSITORY, env=self.child_environment(), capture_output=True)
        return dict(json.loads(done.stdout))


opened: list[Wire] = []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokenBroker]:
    broker = BrokenBroker(tmp_path / "data")
    yield broker
    while opened:
        opened.pop().socket.close()
    broker.close()


class Tenant:
    def __init__(self, broker: BrokerProcess) -> None:
        self.wire = Wire(broker.port)
        opened.append(self.wire)
        self.wire.open()
        self.wire.open_channel()
        self.wire.call(Queue.Declare(queue="theirs", durable=True), channel=1)
        self.wire.call(Confirm.Select(), channel=1)
        self.sent = 0

    def go_on(self) -> None:
        self.sent += 1
        body = b"%d" % self.sent
        self.wire.send_bytes(publish_bytes(1, "", "theirs", body, Basic.Properties(delivery_mode=2)))
        assert self.wire.expect(Basic.Ack).delivery_tag == self.sent
        self.wire.send(Basic.Get(queue="theirs", no_ack=True), channel=1)
        assert self.wire.read_message()[1].body == body


@pytest.mark.parametrize(
    ("breaking", "name"),
    [
        slow(
            "import amqpd.management.figures.sampling as s\n"
            "true = s.trio\n"
            "class Once:\n"
            "    def __getattr__(self, name):\n"
            "        s.trio = true\n"
            "        raise MemoryError\n"
            "s.trio = Once()\n",
            "",
        ),
        slow(
            "import amqpd.process.alarms as a\n"
            "look, calls = a.ShortageWatch.look, []\n"
            "def broken(self):\n"
            "    calls.append(1)\n"
            "    if len(calls) in (2, 3):\n"
            "        raise OSError(5, 'I/O error')\n"
            "    return look(self)\n"
            "a.ShortageWatch.look = broken\n",
            "alarms",
        ),
        (
            "import amqpd.process.garbage as g\n"
            "class GC:\n"
            "    def __getattr__(self, name):\n"
            "        raise OverflowError(name)\n"
            "g.gc = GC()\n",
            "garbage",
        ),
        slow(
            "import amqpd.audit.files.writer as w\n"
            "w.LOOK_S = 0.1\n"
            "anchor, calls = w.AuditWriter._convert_all, []\n"
            "async def broken(self):\n"
            "    calls.append(1)\n"
            "    if len(calls) == 1:\n"
            "        raise RecursionError\n"
            "    await anchor(self)\n"
            "w.AuditWriter._convert_all = broken\n",
            "audit log",
        ),
    ],
    ids=["measurements", "alarms", "garbage", "audit"],
)
def test_a_task_that_fails_begins_again_and_nobody_notices(broker: BrokenBroker, breaking: str, name: str) -> None:
    broker.breaking = breaking
    broker.start()
    tenant = Tenant(broker)
    tenant.go_on()
    line = broker.wait_log("fault_contained")
    assert "reach=task" in line
    assert name in line
    tenant.go_on()
    assert broker.status()["faults"]["task"] >= 1
    assert broker.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [slow("MemoryError()"), "OverflowError()", slow("OSError(28, 'full')"), slow("struct.error('bad')")]
)
def test_a_converter_of_the_audit_log_that_fails_ends_nothing(broker: BrokenBroker, error: str) -> None:
    broker.breaking = (
        "import struct\nimport amqpd.audit.files.parquet as p\n"
        f"def broken(*_):\n    raise {error}\np.convert = broken\n"
    )
    broker.start()
    tenant = Tenant(broker)
    tenant.go_on()
    command = [sys.executable, "-m", "amqpd", "audit", "flush", "--data-dir", str(broker.data_dir)]
    subprocess.run(command, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True, timeout=60)
    broker.wait_log("a part of the audit log")
    tenant.go_on()
    assert broker.terminate() == 0


@pytest.mark.slow
def test_a_log_in_whose_check_fails_is_that_connections(broker: BrokenBroker) -> None:
    broker.breaking = (
        "import amqpd.security.authentication.logins as l\n"
        "verify = l.Logins.verify\n"
        "async def broken(self, user, *rest):\n"
        "    if user == 'mallory':\n"
        "        raise RuntimeError('verify')\n"
        "    return await verify(self, user, *rest)\n"
        "l.Logins.verify = broken\n"
        "l.Logins.verdict_without_hash = lambda *_: None\n"
    )
    broker.start()
    tenant = Tenant(broker)
    with Wire(broker.port) as wire:
        wire.send_bytes(PROTOCOL_HEADER)
        wire.read_method()
        close = wire.call(commands.Connection.StartOk({}, "PLAIN", "\0mallory\0x"))
        assert isinstance(close, commands.Connection.Close)
        assert close.reply_code == 541
    tenant.go_on()
    assert broker.status()["faults"]["connection"] == 1
    assert broker.terminate() == 0


TLS_BREAKS = {
    "receive": "def receive(self, data):\n    raise RuntimeError('receive')\nt.TlsStream.receive = receive\n",
    "send": "def send(self, data):\n    raise RuntimeError('send')\nt.TlsStream.send = send\n",
    "output": "def output(self):\n    raise MemoryError\nt.TlsStream.output = output\n",
    "certificate": "def broken(self):\n    raise RuntimeError('certificate')\nt.TlsStream.certificate = broken\n",
    "end": "def end(self):\n    raise RuntimeError('end')\nt.TlsStream.end = end\n",
    "making": "def __init__(self, context):\n    raise TypeError('context')\nt.TlsStream.__init__ = __init__\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("where", slow_but(["end"], TLS_BREAKS))
@pytest.mark.skipif(address.TLS, reason="the tenant speaks without TLS")
def test_what_fails_in_tls_is_that_connections(broker: BrokenBroker, where: str, tmp_path: Path) -> None:
    broker.breaking = f"import amqpd.transport.tls_stream as t\n{TLS_BREAKS[where]}"
    authority = trustme.CA()
    address.issue(authority).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    port = free_port()
    broker.environment |= {"AMQPD_TLS_PORT": str(port), "AMQPD_TLS_CERTIFICATE": str(tmp_path / "server.pem")}
    broker.start()
    tenant = Tenant(broker)
    context = address.trusting(authority)
    for _ in range(2):
        ended(port, context)
        tenant.go_on()
    assert broker.status()["faults"]["connection"] >= 2
    assert broker.terminate() == 0


def ended(port: int, context: ssl.SSLContext) -> None:
    """A connection through TLS is opened, as far as that goes, and closed: it ends, in whichever way."""
    with Wire(port, tls=False) as wire, contextlib.suppress(OSError, ClosedByBroker):
        wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost", suppress_ragged_eofs=False)
        wire.open()
        wire.close()
        assert wire.socket.recv(1) == b""


def test_a_command_that_fails_is_answered(broker: BrokenBroker) -> None:
    broker.breaking = (
        "import amqpd.management.across_nodes.led_queues as i\n"
        "def broken(*_):\n"
        "    raise RuntimeError('queues')\n"
        "i.listed = broken\n"
        "import amqpd.management.control.socket as c\n"
        "c._credentials = lambda connected: 1 // 0\n"
    )
    broker.start()
    tenant = Tenant(broker)
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(broker.data_dir / "control.sock"))
        assert control.recv(100) == b""
    tenant.go_on()
    broker.wait_log("control connection failed")
    assert broker.terminate() == 0
