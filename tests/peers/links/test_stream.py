"""Bytes through a stream, whatever the sizes of reads and writes are; and a link on one that does as a test says."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
import trio

from amqpd.peers.links.framing import Crc, Incoming, framed
from amqpd.peers.links.handshake import Proven
from amqpd.peers.links.link import PeerLink
from amqpd.peers.links.stream import TLS_BYTES_AT_ONCE, Broken, Stream
from amqpd.peers.messages import Heartbeat
from tests.peers.links.forwarders import PATIENCE_S, Certificates, Heard, hello

pytestmark = pytest.mark.trio

TOLD_BYTES = sum(map(len, framed(Heartbeat(1, 1, 1), Crc())))


@pytest.fixture(params=["plain", "tls"])
def sockets(request: pytest.FixtureRequest, certificates: Certificates) -> tuple[socket.socket, socket.socket]:
    """Connected, and without a handshake yet."""
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    if request.param == "plain":
        return one, other
    tls = certificates.of("there")
    return (
        tls.dialing.wrap_socket(one, do_handshake_on_connect=False),
        tls.accepting.wrap_socket(other, do_handshake_on_connect=False, server_side=True),
    )


async def send_all(stream: Stream, data: bytes, piece_bytes: int) -> None:
    pieces = [memoryview(data)[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    while pieces:
        nbytes = await stream.send(pieces[:60])
        while pieces and nbytes >= len(pieces[0]):
            nbytes -= len(pieces.pop(0))
        if nbytes:
            pieces[0] = pieces[0][nbytes:]


@pytest.mark.parametrize("piece_bytes", [1000, TLS_BYTES_AT_ONCE - 1, TLS_BYTES_AT_ONCE, 400_000])
@pytest.mark.parametrize("view_bytes", [1000, 16_384, 100_000, 1_000_000])
async def test_bytes_arrive_in_order_whatever_the_sizes(
    sockets: tuple[socket.socket, socket.socket], piece_bytes: int, view_bytes: int
) -> None:
    """Both ways at the same time, and nothing that TLS has decrypted is left behind."""
    data = b"".join(number.to_bytes(4, "big") for number in range(200_000))
    ends = [Stream(each) for each in sockets]
    came = dict.fromkeys(ends, b"")

    async def receive(stream: Stream) -> None:
        view, parts, nbytes = memoryview(bytearray(view_bytes)), [], 0
        while nbytes < len(data):
            got = await stream.receive_into(view)
            parts.append(bytes(view[:got]))
            nbytes += got
        came[stream] = b"".join(parts)

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            for stream in ends:
                nursery.start_soon(stream.handshake)
        async with trio.open_nursery() as nursery:
            for stream in ends:
                nursery.start_soon(receive, stream)
                nursery.start_soon(send_all, stream, data, piece_bytes)
    assert list(came.values()) == [data, data]
    ends[0].close()
    with trio.fail_after(PATIENCE_S), pytest.raises(Broken):
        await ends[1].receive_into(memoryview(bytearray(10)))
    with pytest.raises(Broken):
        await send_all(ends[1], data, 1000)
    ends[1].close()


class ClosesMeanwhile(Stream):
    """The link ends while it sends."""

    link: PeerLink

    def send_nowait(self, pieces: Sequence[memoryview]) -> int:
        return 0

    async def send(self, pieces: Sequence[memoryview]) -> int:
        self.link.close("meanwhile")
        return sum(map(len, pieces))


async def test_a_link_may_end_while_it_sends() -> None:
    one, other = socket.socketpair()
    one.setblocking(False)
    stream = ClosesMeanwhile(one)
    link = stream.link = PeerLink(
        stream, Incoming(Crc(), 1000), Proven(hello("b"), Crc()), Heard(), 1000, dialed=True
    )
    with trio.fail_after(PATIENCE_S):
        assert await link.run(lambda link: link.send(Heartbeat(1, 1, 1))) == "meanwhile"
    assert link.out_bytes == 0
    assert one.fileno() == -1
    other.close()


def told(data: bytes) -> list[int]:
    """The numbers of what came."""
    incoming = Incoming(Crc(), 1_000_000)
    incoming.space()[: len(data)] = data
    incoming.took(len(data))
    found = []
    while isinstance(message := incoming.next(), Heartbeat):
        found.append(message.committed)
    return found


async def test_what_a_link_sends_is_on_its_way_when_the_call_returns() -> None:
    """Where nothing waits: a commit that begins right behind it keeps the interpreter from other tasks."""
    one, other = socket.socketpair()
    one.setblocking(False)
    link = PeerLink(Stream(one), Incoming(Crc(), 1000), Proven(hello("b"), Crc()), Heard(), 1000, dialed=True)

    def begun(link: PeerLink) -> None:
        link.send(Heartbeat(1, 1, 1))
        link.send(Heartbeat(1, 2, 2))
        assert link.out_bytes == 0
        assert told(other.recv(1000)) == [1, 2]
        link.close("done")

    with trio.fail_after(PATIENCE_S):
        assert await link.run(begun) == "done"
    other.close()


async def test_what_the_system_does_not_take_goes_in_order_later(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    """Messages that come meanwhile wait behind it; with TLS what was refused is given again as it was."""
    one, other = (Stream(each) for each in sockets)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.handshake)
            nursery.start_soon(other.handshake)
        link = PeerLink(one, Incoming(Crc(), 1000), Proven(hello("b"), Crc()), Heard(), 1 << 30, dialed=True)
        view, data, sent = memoryview(bytearray(65_536)), bytearray(), 0

        def begun(link: PeerLink) -> None:
            nonlocal sent
            while not link.out_bytes:
                sent += 1
                link.send(Heartbeat(1, 1, sent))
            sent += 1
            link.send(Heartbeat(1, 1, sent))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run, begun)
            while not sent or len(data) < sent * TOLD_BYTES:
                data += view[: await other.receive_into(view)]
            link.close("done")
    assert told_all(data) == list(range(1, sent + 1))
    assert link.out_bytes == 0
    other.close()


def told_all(data: bytearray) -> list[int]:
    """The same, of much: each message has the same length."""
    nbytes = len(data) - len(data) % TOLD_BYTES
    return [each for at in range(0, nbytes, TOLD_BYTES) for each in told(bytes(data[at : at + TOLD_BYTES]))]
