"""What a message costs by counts that are the same on every machine: calls, opcodes, system calls, memory.

What comes in: the name of a load. What goes out: numbers per message, or per 1,000.
Rules: 1. Two lengths of run are counted and subtracted, so that what is done once cancels out. 2. Only what the
broker and its libraries do is counted, not what the tests' clients do.
Not here: instructions, which need valgrind (`instructions.py`); bounds (`bounds.toml`).
"""

from __future__ import annotations

import gc
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import trio

from tests.cost.loads import BY_NAME, Load
from tests.cost.rig import Rig, StillClock, serve

TESTS = str(Path(__file__).parents[1])
ROOT = str(Path(__file__).parents[2]) + "/"
WARM_UP = 1_000
# What is asked of the system; that there is none of it is a figure too.
SYSTEM = ("recv", "send", "poll", "modify", "commit")


def count(name: str) -> dict[str, float]:
    """`functions` of Python and `builtins` called, `opcodes` executed, per message; `recv`, `send`, `poll`, `modify`
    and `commit` calls per 1,000 messages."""
    return _in_trio(_count, name)


def _in_trio(work: Callable[[Rig, str], Awaitable[dict[str, float]]], name: str) -> dict[str, float]:
    async def main() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as directory:
            rig = Rig(Path(directory))
            try:
                return await work(rig, name)
            finally:
                rig.close()

    return trio.run(main, clock=StillClock())


async def _count(rig: Rig, name: str) -> dict[str, float]:
    load = Load(rig, BY_NAME[name])
    short = load.kind.messages // 4
    long = load.kind.messages
    figures: dict[str, float] = {}

    async def work() -> None:
        await load.run(WARM_UP)
        for way, per in (("profile", 1), ("trace", 1), ("system", 1000)):
            counted = [await _run(rig, load, messages, way) for messages in (short, long)]
            for what in SYSTEM if way == "system" else counted[1]:
                figures[what] = (counted[1][what] - counted[0][what]) * per / (long - short)

    with still():
        await serve(rig, work)
    load.close()
    return figures


async def _run(rig: Rig, load: Load, messages: int, way: str) -> Counter[str]:
    if way == "system":
        before = Counter(rig.calls)
        await load.run(messages)
        return rig.calls - before
    counts: Counter[str] = Counter()
    with _profiled(counts) if way == "profile" else _traced(counts):
        await load.run(messages)
    return counts


def where(name: str) -> dict[str, float]:
    """Opcodes per message by the function that they are of: {"amqpd/pump.py:_flush": 12.5}."""
    return _in_trio(_where, name)


async def _where(rig: Rig, name: str) -> dict[str, float]:
    load = Load(rig, BY_NAME[name])
    short, long = load.kind.messages // 4, load.kind.messages
    counted: list[Counter[str]] = []

    async def work() -> None:
        await load.run(WARM_UP)
        for messages in (short, long):
            counts: Counter[str] = Counter()
            with _traced(counts, apart=True):
                await load.run(messages)
            counted.append(counts)

    with still():
        await serve(rig, work)
    load.close()
    return {name: (n - counted[0][name]) / (long - short) for name, n in counted[1].items()}


@contextmanager
def still() -> Iterator[None]:
    """No collections of garbage meanwhile: when they come depends on all that was done before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _hooked(hook: object, get: Callable[[], object], put: Callable[[Any], None]) -> Iterator[None]:
    """`hook` instead of the one that `get` finds, which `put` brings back afterwards."""
    before = get()
    put(hook)
    try:
        yield
    finally:
        put(before)


def _profiled(counts: Counter[str]) -> AbstractContextManager[None]:
    """Count calls: `functions` of Python, and `builtins`."""
    kinds = {"call": "functions", "c_call": "builtins"}

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event in kinds and not frame.f_code.co_filename.startswith(TESTS):
            counts[kinds[event]] += 1

    return _hooked(profile, sys.getprofile, sys.setprofile)


def _traced(counts: Counter[str], apart: bool = False) -> AbstractContextManager[None]:
    """Count opcodes; with `apart`, by the function that they are of."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename.startswith(TESTS):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return opcode

    def opcode(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            code = frame.f_code
            counts[f"{_short(code.co_filename)}:{code.co_qualname}" if apart else "opcodes"] += 1
        return opcode

    return _hooked(trace, sys.gettrace, sys.settrace)


def _short(path: str) -> str:
    return path.removeprefix(ROOT).rpartition("site-packages/")[2]


def waiting(name: str) -> dict[str, float]:
    """What a message that waits in a queue keeps: `blocks` of the allocator per 1,000 messages, and `overhead` bytes
    per message beyond the bodies' own."""
    return _in_trio(_waiting, name)


async def _waiting(rig: Rig, name: str) -> dict[str, float]:
    load = Load(rig, BY_NAME[name], consuming=False)
    messages = load.kind.messages
    figures: dict[str, float] = {}

    async def work() -> None:
        await load.run(WARM_UP)
        with still():
            blocks = sys.getallocatedblocks()
            await load.run(messages)
            figures["blocks"] = (sys.getallocatedblocks() - blocks) * 1000 / messages
        tracemalloc.start()
        try:
            with still():
                nbytes, bodies = tracemalloc.get_traced_memory()[0], _body_bytes(rig)
                await load.run(messages)
                nbytes = tracemalloc.get_traced_memory()[0] - nbytes
                figures["overhead"] = (nbytes - _body_bytes(rig) + bodies) / messages
        finally:
            tracemalloc.stop()

    await serve(rig, work)
    load.close()
    return figures


def _body_bytes(rig: Rig) -> int:
    return sum(queue.backlog.ready_bytes for queue in rig.node.queues.values())
