"""Streams as a broker would send them, built by pamqp frame by frame, for the counters to read."""

from __future__ import annotations

from pamqp import commands, frame, header
from pamqp.body import ContentBody

from bench.encode import STAMP, stamp


def encode_delivery(
    number: int,
    *,
    stream: int = 0,
    sequence: int | None = None,
    body_bytes: int = 100,
    key: str = "q",
    body_frames: int = 1,
    redelivered: bool = False,
) -> bytes:
    """Delivery `number` (tag `number + 1`) with the stamp of message `sequence` of `stream`."""
    deliver = commands.Basic.Deliver(
        consumer_tag="c0", delivery_tag=number + 1, redelivered=redelivered, exchange="", routing_key=key
    )
    body = STAMP.pack(stamp(stream, number if sequence is None else sequence)).ljust(body_bytes, b"\0")
    content = header.ContentHeader(body_size=body_bytes, properties=commands.Basic.Properties())
    piece = -(-body_bytes // body_frames)
    pieces = [body[at : at + piece] for at in range(0, body_bytes, piece)]
    return (
        frame.marshal(deliver, 1)
        + frame.marshal(content, 1)
        + b"".join(frame.marshal(ContentBody(part), 1) for part in pieces)
    )
