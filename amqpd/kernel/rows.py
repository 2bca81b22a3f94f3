"""Rows of the journal back into runs.

What comes in: the blob of a row, which is the frames of publishes end to end. What goes out: its runs.
Rules: what the broker itself has written parses whole; anything else raises.
Not here: checksums (the disk verifies them).
"""

from __future__ import annotations

from amqpd.kernel import Mixed, Run, scan_batch, scan_publishes

# The journal holds only what was accepted; no frame of it can be larger than this.
_PAYLOAD_BYTES_MAX = (1 << 32) - 1


def parse_row(data: bytes, batches: bool = False) -> list[Run]:
    """The runs in `data`, in order; with `batches`, messages that differ stand together. Raises ValueError when it is
    not wholly publishes."""
    runs, pos, end = [], 0, len(data)
    scan = scan_batch if batches else scan_publishes
    while pos < end:
        run = scan(data, pos, end, _PAYLOAD_BYTES_MAX)
        if run is None or not run.count:
            raise ValueError(f"no publish at byte {pos} of {end}")
        if isinstance(run, Mixed):
            run.drop_keys()
        runs.append(run)
        pos += run.nbytes
    return runs
