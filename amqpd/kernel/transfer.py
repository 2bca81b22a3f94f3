"""Runs between nodes: the bytes of some messages of a run, and a run again of bytes that a peer has sent.

What comes in: a run; bytes, and how many messages they are said to be. What goes out: frames, end to end; a run.
Rules: 1. The frames travel as they were received, as they stand in the journal (`rows.py`): what else a run knows is
found again. 2. Large ones go without a copy: a view holds the run's buffer for as long as it lives. 3. A peer may
send anything: the kernel's own scan measures every frame, and bytes that are not wholly this number of publishes are
a ValueError. What it takes is proportional to the bytes that are there, whatever they say. 4. A batch that begins
with messages that are alike, as `Mixed.divided` makes them, is one batch again; one that has only such is a run.
Not here: whether properties can be read (`message/properties.py`), which message has a run (`amqpd/remote`).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from amqpd.kernel import Mixed, Run, scan_batch
from amqpd.kernel.mixed import MESSAGES_MAX
from amqpd.kernel.pieces import LARGE_BYTES_MIN
from amqpd.kernel.screening import common_of

# No frame of a body is larger: a message of a client has at most half of it (`message_bytes_max`).
PAYLOAD_BYTES_MAX: Final = 1 << 30
# A client's frames have at most 16 MiB (`frame_max`), and nothing puts content headers together.
HEADER_BYTES_MAX: Final = 16 << 20
_PUBLISH_ID = b"\x00\x3c\x00\x28"
_PLACE = Struct("=IHHII")
"""as in `mixed.py`"""


def frames_of(run: Run, low: int, high: int) -> bytes | memoryview:
    """The frames of messages low..high-1 of the run. Raises IndexError for messages that it has not."""
    if not 0 <= low <= high <= run.count:
        raise IndexError(f"messages {low} to {high} of a run of {run.count}")
    if run.mixed:
        return run.raw() if high - low == run.count else run.part(low, high).raw()
    data = run.data
    begin, stop = run.start + low * run.stride, run.start + high * run.stride
    if stop - begin == len(data):
        return data
    return memoryview(data)[begin:stop] if stop - begin >= LARGE_BYTES_MIN else data[begin:stop]


def read_run(data: bytes, count: int) -> Run:
    """The run, or batch without keys, of so many messages that `data` is. Raises ValueError for anything else."""
    run = _scan(data, 0)
    if run.nbytes != len(data):
        run = _joined(data, run)
    elif isinstance(run, Mixed):
        run.drop_keys()
    if run.count != count:
        raise ValueError(f"{run.count} publishes where {count} are announced")
    return run


def _scan(data: bytes, pos: int) -> Run:
    """What begins at `pos`."""
    run = scan_batch(data, pos, len(data), PAYLOAD_BYTES_MAX)
    if run is None or not run.count or data[pos + 7 : pos + 11] != _PUBLISH_ID:
        raise ValueError(f"no publish at byte {pos} of {len(data)}")
    if not run.mixed and run.header_size > HEADER_BYTES_MAX:
        raise ValueError(f"a content header of {run.header_size} bytes")
    return run


def _joined(data: bytes, run: Run) -> Mixed:
    """A batch of this first part, and of what follows it up to the end of the data."""
    index: list[bytes] = []
    at, common, channel = 0, _common(run), data[1:3]
    while True:
        shapes = (
            [(method, header, body) for _, method, _, header, body in _PLACE.iter_unpack(run.index)]
            if isinstance(run, Mixed)
            else [(run.method_size, run.header_size, run.body_size)] * run.count
        )
        for method, header, body in shapes:
            index.append(_PLACE.pack(at, method, 0, header, body))
            at += method + header + (body + 8 if body else 0)
        if at == len(data):
            return Mixed(data, b"".join(index), (), common)
        run = _scan(data, at)
        if len(index) + run.count > MESSAGES_MAX or data[at + 1 : at + 3] != channel or _common(run) != common:
            raise ValueError(f"what follows at byte {at} is of no batch with what is before it")


def _common(run: Run) -> bytes:
    """What the broker acts on in the properties of all of it."""
    if isinstance(run, Mixed):
        return run.common
    common = common_of(run.properties) if run.body_frames < 2 else None
    if common is None or run.count > MESSAGES_MAX:
        raise ValueError(f"{run.count} publishes of {run.nbytes} bytes are of no batch")
    return common
