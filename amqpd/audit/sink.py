"""The spool's file as the tick has it: one write for all that gathered.

What comes in: the recorder's buffer. What goes out: blocks in the open file; calls when it has become large, or
cannot be written.
Rules: 1. It is in the way of messages, so it does nothing else. 2. It never raises: a writer that cannot write drops
what gathered.
Not here: opening and ending files, what happens when there is no space (`files/writer.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from amqpd.audit.recorder import Recorder
from amqpd.audit.spool import HEAD


class Sink:
    """Writes what the recorder has gathered to the spool's file. `descriptor` is of a file opened for appending,
    `size` what is in it; while the sink is `dropping`, nothing is written."""

    def __init__(
        self,
        recorder: Recorder,
        bytes_max: int,
        write: Callable[[int, bytes], int],
        failed: Callable[[Exception], None],
        filled: Callable[[], None],
    ) -> None:
        """`write` as os.write; `failed` is called when a block could not be written, `filled` when the file has
        `bytes_max`."""
        self.descriptor = -1
        self.size = 0
        self.dropping = False
        self._recorder = recorder
        self._bytes_max = bytes_max
        self._write = write
        self._failed = failed
        self._filled = filled

    def record(self) -> None:
        """Write down what gathered."""
        recorder = self._recorder
        buffer = recorder.buffer
        if not buffer.pending:
            return
        recorder.later()
        if self.dropping:
            buffer.drop()
            return
        try:
            self.write(buffer.take())
            if self.size >= self._bytes_max:
                self._filled()
        except Exception as error:  # noqa: BLE001 - whatever it was, events are lost; the log says so, the node goes on
            self._failed(error)

    def write(self, block: bytes) -> None:
        """Raises OSError; what was written then is beyond `size`, and the buffer's `rows_before` is what it was
        before the block."""
        try:
            written = self._write(self.descriptor, block)
            while written < len(block):
                written += self._write(self.descriptor, block[written:])
        except BaseException:
            # Zero steps for a block that is written.
            self._recorder.buffer.rows_before = HEAD.unpack_from(block)[-1]
            raise
        self.size += len(block)
