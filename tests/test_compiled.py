"""Which kernel runs: the compiled one where it was built from these sources, unless AMQPD_KERNEL says otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import amqpd.compiled
from amqpd import KERNEL
from amqpd.compiled import COMPILED, MANIFEST, VARIABLE, KernelError, choose, sources, write_manifest
from tests.harness.slow import slow_but


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / f"compiled{EXTENSION_SUFFIXES[0]}").touch()
    write_manifest(tmp_path, sources())
    return tmp_path


def test_what_was_compiled_is_taken(built: Path) -> None:
    assert choose("", built) == choose("cython", built) == ("cython", "")


def test_python_forces_the_plain_one(built: Path) -> None:
    assert choose("python", built)[0] == "python"


def test_without_anything_compiled_the_plain_one_runs_and_says_why(tmp_path: Path) -> None:
    kernel, reason = choose("", tmp_path)
    assert kernel == "python"
    assert "make build" in reason


def test_who_installed_it_is_not_sent_to_a_makefile(tmp_path: Path) -> None:
    package = tmp_path / "amqpd"
    package.mkdir()
    shutil.copy(amqpd.compiled.__file__, package)
    script = "import compiled; print(compiled.unusable())"
    found = subprocess.run([sys.executable, "-c", script], cwd=package, capture_output=True, text=True)
    sentence = "nothing is compiled: to install amqpd again does it where there is a C compiler\n"
    assert (found.stdout, found.stderr) == (sentence, "")


def test_a_wheel_for_every_python_has_nothing_to_compile() -> None:
    script = (
        "import runpy, setuptools, sys; sys.argv = ['setup.py', 'bdist_wheel'];"
        "setuptools.setup = lambda **given: print(given['ext_modules']); runpy.run_path('setup.py')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env=os.environ | {VARIABLE: "python"},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_what_is_older_than_its_source_is_not_used(built: Path) -> None:
    manifest = json.loads((built / MANIFEST).read_text())
    manifest["sources"]["amqpd/node/node.py"] = "another"
    (built / MANIFEST).write_text(json.dumps(manifest))
    kernel, reason = choose("", built)
    assert kernel == "python"
    assert "older than its sources" in reason


def test_what_is_for_another_python_is_not_used(built: Path) -> None:
    next((built / "kernel").iterdir()).unlink()
    kernel, reason = choose("", built)
    assert kernel == "python"
    assert "another Python" in reason


def test_a_demanded_kernel_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="AMQPD_KERNEL is cython, but nothing is compiled: 'make build'"):
        choose("cython", tmp_path)


def test_another_name_is_refused() -> None:
    environment = os.environ | {VARIABLE: "rust"}
    found = subprocess.run(
        [sys.executable, "-m", "amqpd", "--version"], env=environment, capture_output=True, text=True
    )
    sentence = "amqpd: AMQPD_KERNEL is 'rust', and kernels are python and cython: correct or unset it\n"
    assert (found.returncode, found.stderr) == (1, sentence)


@pytest.mark.parametrize("value", ["python", " Python "])
def test_the_environment_decides_at_import(value: str) -> None:
    script = "from amqpd import kernel, connection; print(kernel.NAME, connection.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {VARIABLE: value}, capture_output=True, text=True
    )
    assert found.stdout.startswith("python ")
    assert found.stdout.endswith("connection.py\n")
    assert found.stderr == ""


@pytest.mark.skipif(KERNEL == "python", reason="nothing is compiled, or not to be used")
@pytest.mark.parametrize("module", slow_but({each.rpartition(".")[0]: each for each in COMPILED}.values(), COMPILED))
def test_a_compiled_module_can_be_the_first_that_is_imported(module: str) -> None:
    """The modules import each other in circles, and what is compiled looks into types that may not be there yet."""
    found = subprocess.run(
        [sys.executable, "-c", f"import {module} as module; print(module.__file__)"], capture_output=True, text=True
    )
    assert found.stderr == ""
    assert "_compiled" in found.stdout
