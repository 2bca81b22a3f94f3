"""What is not messages: connections that come and go, queues that are declared, connections that only wait.

What comes in: counts, or a measured window. What goes out: how many were done in which time. Rules: 1. one
thing at a time, each waiting for its reply, as an application does it; 2. frames are encoded before, replies
recognised by their length and method, so that it is the broker's time that is measured.
Not here: messages at speed (`publish.py`, `closed.py`).
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from pamqp import commands, frame
from pamqp.header import ProtocolHeader

from bench.clock import Stopwatch, now
from bench.encode import STAMP, encode_publish
from bench.errors import BenchError, name_of_frame
from bench.link import Link
from bench.wire import Address, Socket, Wire, connect

GO_SECONDS_MAX = 300.0
REPLY_SECONDS_MAX = 30.0


def churn(link: Link, *, url: str, key: str, body_bytes: int) -> dict[str, Any]:
    """Connect, open a channel, publish once with confirm, close; again and again until the window ends."""
    address = Address.parse(url)
    one, body_at = encode_publish("", key, bytes(body_bytes))
    publish = bytearray(one)
    steps = _churn_steps(address, publish)
    link.say("ready")
    go = link.hear("go", GO_SECONDS_MAX)
    watch = Stopwatch(go["start"], go["stop"])
    count, moment = 0, now()
    while moment < watch.stop:
        with closing(connect(address, REPLY_SECONDS_MAX)) as sock:
            STAMP.pack_into(publish, body_at, count)
            for data, reply in steps:
                sock.sendall(data)
                _await(sock, reply)
        count += 1
        moment = now()
        if moment >= watch.mark:
            watch.take(moment, count)
    link.say("stopped", published=count, confirmed=count)
    link.hear("finish", GO_SECONDS_MAX)
    return {"published": count, "window": watch.report()}


def _churn_steps(address: Address, publish: bytearray) -> list[tuple[bytes | bytearray, bytes]]:
    """(what is sent, class and method of the reply that ends the step)."""
    start_ok = commands.Connection.StartOk(
        client_properties={"product": "amqpd bench"},
        mechanism="PLAIN",
        response=f"\0{address.user}\0{address.password}",
    )
    tune_ok = commands.Connection.TuneOk(2047, 131_072, 0)
    opening = frame.marshal(tune_ok, 0) + frame.marshal(commands.Connection.Open(address.vhost), 0)
    return [
        (ProtocolHeader(0, 9, 1).marshal(), _method(10, 10)),
        (frame.marshal(start_ok, 0), _method(10, 30)),
        (opening, _method(10, 41)),
        (frame.marshal(commands.Channel.Open(), 1), _method(20, 11)),
        (frame.marshal(commands.Confirm.Select(), 1), _method(85, 11)),
        (publish, _method(60, 80)),
        (frame.marshal(commands.Connection.Close(200, "", 0, 0), 0), _method(10, 51)),
    ]


def _method(class_id: int, method_id: int) -> bytes:
    return bytes([0, class_id, 0, method_id])


def _await(sock: Socket, reply: bytes) -> None:
    """Receive exactly one whole frame, which must be of method `reply`."""
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[3:7]):
        chunk = sock.recv(65_536)
        if not chunk:
            raise BenchError(f"the broker closed the connection: {name_of_frame(data)}")
        data += chunk
    if data[7:11] != reply or len(data) != 8 + int.from_bytes(data[3:7]):
        raise BenchError(f"method {tuple(reply[1::2])} was due, came {name_of_frame(data)}")


def declare(link: Link, *, url: str, prefix: str, queues: int) -> dict[str, Any]:
    """Declare durable queues one by one, then delete them one by one."""
    names = [f"{prefix}{number:05}" for number in range(queues)]
    phases = {
        "declare": (
            [frame.marshal(commands.Queue.Declare(queue=n, durable=True), 1) for n in names],
            (50, 11),
        ),
        "delete": ([frame.marshal(commands.Queue.Delete(queue=n), 1) for n in names], (50, 41)),
    }
    report: dict[str, Any] = {"queues": queues}
    with Wire(url) as wire:
        link.say("ready")
        link.hear("go", GO_SECONDS_MAX)
        wire.socket.settimeout(REPLY_SECONDS_MAX)
        for phase, (requests, reply) in phases.items():
            began, begun_cpu = now(), time.process_time()
            for request in requests:
                wire.socket.sendall(request)
                _await(wire.socket, _method(*reply))
            report[phase] = {
                "seconds": now() - began,
                "cpu_s": time.process_time() - begun_cpu,
                "count": queues,
            }
    return report


def idle(link: Link, *, url: str, connections: int) -> dict[str, Any]:
    """Open connections with a channel, an exclusive queue and a consumer each, hold them, close them."""
    link.say("ready")
    link.hear("go", GO_SECONDS_MAX)
    began, begun_cpu = now(), time.process_time()
    wires = []
    for _ in range(connections):
        wire = Wire(url)
        queue = wire.call(commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk).queue or ""
        wire.call(commands.Basic.Consume(queue=queue, no_ack=True), commands.Basic.ConsumeOk)
        wires.append(wire)
    window = {"seconds": now() - began, "cpu_s": time.process_time() - begun_cpu, "count": connections}
    link.say("stopped", published=0)
    link.hear("finish", GO_SECONDS_MAX)
    for wire in wires:
        wire.close()
    return {"connections": connections, "window": window}
