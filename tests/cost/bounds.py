"""The bounds of what a message costs: what was measured last, and how much more is let pass.

What comes in: figures of a load. What goes out: sentences about those that are over their bound.
Rules: 1. A bound is the figure in `bounds.toml` and the allowance of its quantity. 2. The table is by what was
measured: the kernel, and whether the modules around it are compiled; what is not in it is not bounded yet.
3. Opcodes, memory and instructions depend on the version of Python: on another one than the table's they are not
compared.
Not here: measuring (`counting.py`, `instructions.py`), writing the table (`measure.py` prints it).
"""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import amqpd.connection
from amqpd import kernel

TABLE = Path(__file__).with_name("bounds.toml")


class Quantity(NamedTuple):
    unit: str
    allowance: float
    """this part of the figure may come on top"""
    slack: float
    """and this in any case: where compiled code has left nearly nothing, nearly nothing more is no matter"""
    any_python: bool
    """is the same with each version of Python, nearly"""
    look: str
    """how one finds what has grown; `{load}` is its name"""


_CALLS = "python -m tests.cost.measure --where {load}"
_SYSTEM = "amqpd/pump.py makes these calls; strace -f -c -p PID of a broker shows all under `python -m bench {load}`"
_MEMORY = "tracemalloc.take_snapshot() behind the run in tests/cost/counting.py, and compare_to one before"
_PROFILE = "python -m tests.cost.measure --profiles . {load} && callgrind_annotate --auto=no {load}.callgrind"
QUANTITIES = {
    "functions": Quantity("calls of Python functions a message", 0.15, 0.05, True, _CALLS),
    "builtins": Quantity("calls of built-in functions a message", 0.15, 0.05, True, _CALLS),
    "opcodes": Quantity("opcodes of Python a message", 0.15, 0.5, False, _CALLS),
    "recv": Quantity("recv calls in 1,000 messages", 0.1, 0.1, True, _SYSTEM),
    "send": Quantity("send calls in 1,000 messages", 0.1, 0.1, True, _SYSTEM),
    "poll": Quantity("epoll_wait calls in 1,000 messages", 0.1, 0.1, True, _SYSTEM),
    "modify": Quantity("epoll_ctl calls in 1,000 messages", 0.1, 0.1, True, _SYSTEM),
    "commit": Quantity("commits of the journal in 1,000 messages", 0.1, 0.1, True, _SYSTEM),
    "instructions": Quantity("instructions of the processor a message", 0.2, 50, False, _PROFILE),
    "allocations": Quantity("calls of Python's allocator a message", 0.2, 0.1, False, _PROFILE),
    "blocks": Quantity("blocks of memory kept for 1,000 waiting messages", 0.15, 2, False, _MEMORY),
    "overhead": Quantity("bytes kept for each waiting message beyond its body", 0.15, 1, False, _MEMORY),
}


def build() -> str:
    """What is measured: the kernel's name, and "+modules" when the modules around it are compiled."""
    compiled = not str(amqpd.connection.__file__).endswith(".py")
    return kernel.NAME + "+modules" * compiled


def python() -> str:
    """Major and minor version."""
    return ".".join(platform.python_version_tuple()[:2])


def table() -> dict[str, Any]:
    return tomllib.loads(TABLE.read_text())


def bounds_of(load: str) -> Mapping[str, float]:
    """The figures of the load for this build; empty when there are none."""
    figures: Mapping[str, float] = table().get(build(), {}).get(load, {})
    return figures


def excesses(load: str, measured: Mapping[str, float], bounds: Mapping[str, float], same_python: bool) -> list[str]:
    """A sentence for each figure that is over its bound."""
    found = []
    for name, value in measured.items():
        quantity = QUANTITIES[name]
        if name not in bounds or not (same_python or quantity.any_python):
            continue
        was = bounds[name]
        bound = was * (1 + quantity.allowance) + quantity.slack
        if value > bound:
            found.append(
                f"{load}: {value:,.4g} {quantity.unit}; it was {was:,g} when tests/cost/bounds.toml was written, "
                f"and the bound is {bound:,.4g}.\n"
                f"  To see where: {quantity.look.format(load=load)}\n"
                f"  If it has to be: `python -m tests.cost.measure {load}` prints the new line; the commit says why."
            )
    return found
