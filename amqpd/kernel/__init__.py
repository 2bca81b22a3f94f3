"""The kernel: the work that is done per message, behind one seam.

What comes in: received buffers and ranges. What goes out: `Run`s of publishes, encoded deliveries, ranges of
acknowledged delivery tags.
Rules: 1. pure and synchronous; 2. `reference.py` is the definition: any other build of the same interface must
give equal results for any bytes, cut anywhere (`compiled.pyx` is one); 3. nothing outside this package looks into a
`Run`'s bytes, except through its methods; 4. one process has one kernel, chosen here when it starts and never
changed: the runs of two kernels do not mix. This is the one place of the core that asks the environment.
Not here: everything that AMQP says less often than once per message (`wire.py`, by pamqp), and what a publish
means (`channels.py`, `queues/`); how the compiled kernel is built (`setup.py`).
"""

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from amqpd.errors import StartupError
from amqpd.kernel import reference

VARIABLE = "AMQPD_KERNEL"


class KernelError(StartupError, ImportError):
    """The kernel that AMQPD_KERNEL asks for is not there."""


def choose(wanted: str) -> ModuleType:
    """The kernel `wanted`: "python", "cython", or "" for the compiled one where it was built. Raises KernelError."""
    if wanted not in ("", "python", "cython"):
        raise KernelError(f"{VARIABLE} is {wanted!r}, and kernels are python and cython; correct or unset it")
    if wanted != "python":
        try:
            return import_module("amqpd.kernel.compiled")
        except ImportError as error:
            if wanted:
                raise KernelError(
                    f"{VARIABLE} is cython, and the compiled kernel cannot be loaded ({error}); "
                    f"install amqpd again on a machine with a C compiler, or unset {VARIABLE}"
                ) from error
    return reference


if TYPE_CHECKING:
    # Every kernel has the types of the reference.
    from amqpd.kernel.reference import (
        INCOMPLETE,
        NAME,
        Run,
        encode_content,
        encode_deliveries,
        scan_acks,
        scan_publishes,
    )
else:
    chosen = choose(os.environ.get(VARIABLE, "").strip().lower())
    INCOMPLETE = chosen.INCOMPLETE
    NAME = chosen.NAME
    Run = chosen.Run
    encode_content = chosen.encode_content
    encode_deliveries = chosen.encode_deliveries
    scan_acks = chosen.scan_acks
    scan_publishes = chosen.scan_publishes

__all__ = [
    "INCOMPLETE",
    "NAME",
    "VARIABLE",
    "KernelError",
    "Run",
    "choose",
    "encode_content",
    "encode_deliveries",
    "scan_acks",
    "scan_publishes",
]
