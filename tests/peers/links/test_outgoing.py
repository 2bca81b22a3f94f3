"""What waits for a peer goes out in order, whatever the socket takes at a time; large pieces as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amqpd.peers.links.framing import JOINED_BYTES_MAX, PIECES_AT_ONCE, Outgoing

pieces = st.lists(
    st.lists(st.binary(max_size=50) | st.just(bytes(JOINED_BYTES_MAX)), min_size=1, max_size=4), max_size=8
)
taken = st.integers(1, 9) | st.integers(1000, 50_000)


@given(pieces, st.data())
def test_bytes_go_out_in_order(sent: list[list[bytes]], data: st.DataObject) -> None:
    out, went, whole = Outgoing(), b"", b""
    for message in sent:
        out.add(message)
        whole += b"".join(message)
        if out.nbytes and data.draw(st.booleans()):
            went += take(out, data.draw(taken))
    for nbytes in data.draw(st.lists(taken, max_size=20)):
        went += take(out, nbytes)
    while out.nbytes:
        went += take(out, 10_000)
    assert went == whole
    assert out.next() == []


def take(out: Outgoing, nbytes: int) -> bytes:
    """At most this number of bytes, as a socket does."""
    taken = b"".join(out.next())[:nbytes]
    out.sent(len(taken))
    return taken


def test_large_pieces_are_not_copied() -> None:
    out, payload = Outgoing(), bytes(JOINED_BYTES_MAX)
    out.add([b"head", payload])
    assert out.next()[1].obj is payload


def test_small_messages_are_one_piece_each() -> None:
    out = Outgoing()
    out.add([b"head", b"payload"])
    out.add([b"told"])
    assert [bytes(each) for each in out.next()] == [b"headpayload", b"told"]


def test_a_socket_is_given_a_bounded_number_of_pieces() -> None:
    out = Outgoing()
    for _ in range(3 * PIECES_AT_ONCE):
        out.add([b"told"])
    assert len(out.next()) == PIECES_AT_ONCE


def test_what_is_cleared_is_gone() -> None:
    out = Outgoing()
    out.add([b"told"])
    out.clear()
    assert (out.nbytes, out.next()) == (0, [])
