"""What the kernel costs a message: `python -m bench.kernel [--seconds S] [--kernel python|cython]`.

What comes in: how long each figure may take. What goes out: a table of nanoseconds of CPU time per message for taking
a run out of a buffer, reading what decides its route, encoding its deliveries, and settling acks, for each kernel.
Rules: 1. CPU time of this process, best of several rounds: other processes on the machine do not count. 2. One call
is one run, so the rows of one message are what a closed loop and mixed keys pay. 3. Results of the kernels are
compared before they are timed.
Not here: whole brokers (`bench/scenarios/`), whether the results are right (`tests/kernel/test_kernels_agree.py`).
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from amqpd import KERNEL_REASON

COUNTS = (1, 2, 8, 256, 1300)
BODY_BYTES = (0, 100, 1000)
ROUNDS = 7
FRAME_MAX = 131_072
CONSUMER = b"\x06ctag-1"


def publish_frames(size: int) -> bytes:
    """One publish to the default exchange, routing key of one octet, persistent."""

    def frame(kind: int, payload: bytes) -> bytes:
        return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"

    method = frame(1, b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00")
    header = frame(2, struct.pack(">HHQHB", 60, 0, size, 0x1000, 2))
    return method + header + (frame(3, bytes(size)) if size else b"")


def ack_frames(count: int) -> bytes:
    return b"".join(struct.pack(">BHIIQBB", 1, 1, 13, 0x003C0050, tag, 0, 0xCE) for tag in range(1, count + 1))


def best(call: Callable[[], object], seconds: float) -> float:
    """Nanoseconds of CPU time of one call."""
    calls, spent = 1, 0.0
    while spent < seconds / ROUNDS / 2:
        calls *= 2
        spent = _timed(call, calls)
    return min(_timed(call, calls) for _ in range(ROUNDS)) / calls * 1e9


def _timed(call: Callable[[], object], calls: int) -> float:
    before = time.process_time()
    for _ in range(calls):
        call()
    return time.process_time() - before


def works(kernel: Any, data: bytes, acks: bytes) -> dict[str, Callable[[], object]]:
    """What is timed, by its name in the table."""
    end, acks_end = len(data), len(acks)
    run = kernel.scan_publishes(data, 0, end, FRAME_MAX)
    scan, encode, settle = kernel.scan_publishes, kernel.encode_deliveries, kernel.scan_acks
    return {
        "scan": lambda: scan(data, 0, end, FRAME_MAX),
        "read": lambda: (run.key, run.properties, run.body_size, run.stride, run.count),
        "encode": lambda: encode(run, 0, run.count, 2, CONSUMER, 1000, False, FRAME_MAX),
        "acks": lambda: settle(acks, 0, acks_end),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kernel", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each figure (default: %(default)s)")
    parser.add_argument("--kernel", choices=("python", "cython"), help="only this one")
    given = parser.parse_args()
    kernels = {}
    for name, module in {"python": "reference", "cython": "compiled"}.items():
        if given.kernel in (None, name):
            try:
                kernels[name] = import_module(f"amqpd.kernel.{module}")
            except ImportError as error:
                print(f"without cython: {KERNEL_REASON or error}")
    columns = (f"{column:>9}" for column in ("scan", "read", "encode", "acks"))
    print(f"{'messages':>8} {'bytes':>6} {'kernel':>8}", *columns, "  ns per message")
    for count in COUNTS:
        for size in BODY_BYTES:
            compare(kernels, count, size, given.seconds)


def compare(kernels: dict[str, Any], count: int, size: int, seconds: float) -> None:
    data, acks = publish_frames(size) * count, ack_frames(count)
    results = [{name: work() for name, work in works(kernel, data, acks).items()} for kernel in kernels.values()]
    for result in results:
        run: Any = result.pop("scan")
        assert run.count == count
        assert result == results[0]
    for name, kernel in kernels.items():
        figures = [best(work, seconds) / count for work in works(kernel, data, acks).values()]
        print(f"{count:>8} {size:>6} {name:>8}", *(f"{figure:>9.1f}" for figure in figures))


if __name__ == "__main__":
    main()
