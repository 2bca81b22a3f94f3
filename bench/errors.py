"""The one exception of the bench, and the sentence that names an unexpected frame.

What comes in: bytes at a frame boundary. What goes out: text for people. Rule: a benchmark that cannot vouch
for its counts raises BenchError and has no figure.
Not here: deciding what is unexpected (`count.py`, `confirms.py`, `wire.py`).
"""

from __future__ import annotations

from pamqp import commands, exceptions, frame


class BenchError(Exception):
    """A run is not valid: the broker refused, lost, repeated or changed something, or a worker died."""


def name_of_frame(data: bytes | bytearray) -> str:
    """What the frame at the start of `data` is, in words; never raises."""
    try:
        _, channel, value = frame.unmarshal(bytes(data))
    except (exceptions.UnmarshalingException, ValueError, KeyError, IndexError):
        return f"bytes that are no whole frame: {bytes(data[:32]).hex(' ')}"
    if isinstance(value, commands.Connection.Close | commands.Channel.Close):
        return f"{value.name} {value.reply_code} {value.reply_text} on channel {channel}"
    return f"{getattr(value, 'name', type(value).__name__)} on channel {channel}"
