"""Which kernel runs: the compiled one where it was built, unless AMQPD_KERNEL says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from amqpd import kernel
from amqpd.kernel import KernelError, choose, reference


@pytest.fixture
def no_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    # What sys.modules has as None cannot be imported.
    monkeypatch.setitem(sys.modules, "amqpd.kernel.compiled", None)


@pytest.fixture
def compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("amqpd.kernel.compiled")
    monkeypatch.setitem(sys.modules, "amqpd.kernel.compiled", module)
    return module


def test_the_compiled_kernel_is_taken_where_it_is(compiled_kernel: ModuleType) -> None:
    assert choose("") is compiled_kernel
    assert choose("cython") is compiled_kernel


def test_python_forces_the_reference(compiled_kernel: ModuleType) -> None:
    assert choose("python") is reference


@pytest.mark.usefixtures("no_compiled_kernel")
def test_without_a_compiled_kernel_the_reference_runs() -> None:
    assert choose("") is reference


@pytest.mark.usefixtures("no_compiled_kernel")
def test_a_demanded_kernel_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(
        ImportError, match="AMQPD_KERNEL is cython, and the compiled kernel cannot be loaded"
    ) as caught:
        choose("cython")
    assert isinstance(caught.value, KernelError)
    assert "\n" not in caught.value.sentence


def test_another_name_is_refused() -> None:
    with pytest.raises(KernelError, match="AMQPD_KERNEL is 'rust', and kernels are python and cython"):
        choose("rust")


@pytest.mark.parametrize("value", ["python", " Python "])
def test_the_environment_decides_at_import(value: str) -> None:
    script = "from amqpd import kernel; from amqpd.kernel.rows import scan_publishes; print(kernel.NAME)"
    found = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {kernel.VARIABLE: value}, capture_output=True, text=True
    )
    assert (found.stdout, found.stderr) == ("python\n", "")
