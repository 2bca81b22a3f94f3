"""The kernels that tests compare and run on: the reference, and the compiled one where it was built."""

from __future__ import annotations

from types import ModuleType

import pytest

from amqpd.kernel import reference

SHAPE = ("data", "start", "stride", "count", "method_size", "header_size", "body_size", "body_frames")

compiled: ModuleType | None
try:
    from amqpd.kernel import compiled
except ImportError:
    compiled = None

needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")
each_kernel = pytest.mark.parametrize(
    "kernel", [pytest.param(reference, id="python"), pytest.param(compiled, id="cython", marks=needs_compiled)]
)
