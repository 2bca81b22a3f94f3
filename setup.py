"""What a C compiler makes faster; everything works without it.

What comes in: `build_ext`, from `make build` (in place) or from building a wheel. What goes out: `amqpd/_compiled/`,
the kernel (Cython) and the modules that messages go through (mypyc, from the same typed source that runs plain), and
a manifest of the sources that they were made from.
Rules: 1. What cannot be compiled is no error: one sentence, and the plain Python kernel runs. 2. The manifest is
written only when all is there; `amqpd/compiled.py` uses nothing without it, nor what is older than its source.
3. With AMQPD_KERNEL=python a wheel has nothing compiled, and is for every Python.
Not here: which of the two runs (`amqpd/compiled.py`), everything else about the package (`pyproject.toml`).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
KERNEL = "amqpd/kernel/compiled.pyx"


def _compiled_module():
    """`amqpd/compiled.py`, without importing the package that it is in."""
    spec = importlib.util.spec_from_file_location("compiled", ROOT / "amqpd" / "compiled.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiled = _compiled_module()
# As they are now: an edit while the others are compiled is not compiled.
SOURCES = compiled.sources()


def extensions() -> list[Extension]:
    """The kernel and the modules, to be put beside each other under `amqpd._compiled`."""
    try:
        from Cython.Build import cythonize
        from mypyc.build import mypycify

        (kernel,) = cythonize(
            [Extension("amqpd.kernel.compiled", [KERNEL], extra_compile_args=["-O3"])],
            language_level=3,
            build_dir="build",
        )
        modules = mypycify(
            ["--ignore-missing-imports", *(f"{module.replace('.', '/')}.py" for module in compiled.COMPILED)],
            group_name="amqpd_modules",
            opt_level="3",
            multi_file=True,
        )
    except (ImportError, SystemExit) as error:
        print(f"amqpd: not compiled, it runs on its plain Python kernel: {error}", file=sys.stderr)
        return []
    for extension in [kernel, *modules]:
        extension.name = f"{compiled.PACKAGE}.{extension.name.removeprefix('amqpd.')}"
        extension.optional = True
    return [kernel, *modules]


class BuildCompiled(build_ext):
    def run(self) -> None:
        if getattr(self, "editable_mode", False):
            return  # a checkout is compiled by `make build`, when its sources have changed
        self.parallel = self.parallel or os.cpu_count()
        folder = (ROOT if self.inplace else Path(self.build_lib)) / compiled.PACKAGE.replace(".", "/")
        shutil.rmtree(folder, ignore_errors=True)
        if self.inplace:
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).parent.mkdir(parents=True, exist_ok=True)
        super().run()
        if self.extensions and all(Path(self.get_ext_fullpath(each.name)).exists() for each in self.extensions):
            compiled.write_manifest(folder, SOURCES)
        elif self.extensions:
            print("amqpd: not compiled (see above), it runs on its plain Python kernel", file=sys.stderr)

    def build_extensions(self) -> None:
        """Several files of an extension at a time: nearly all of them are of one, and `parallel` is by extension."""
        compile_in_turn, pool = self.compiler.compile, ThreadPoolExecutor(self.parallel)

        def compile_at_once(sources: list[str], *args: object, **kwargs: object) -> list[str]:
            objects = pool.map(lambda source: compile_in_turn([source], *args, **kwargs), sources)
            return list(itertools.chain.from_iterable(objects))

        self.compiler.compile = compile_at_once
        with pool:
            super().build_extensions()

    def get_outputs(self) -> list[str]:
        manifest = Path(self.build_lib, *compiled.PACKAGE.split("."), compiled.MANIFEST)
        return [*super().get_outputs(), *([str(manifest)] if manifest.exists() else [])]


# Only a build pays for looking at the sources.
BUILDS = {"build_ext", "bdist_wheel", "install", "build"} & set(sys.argv)
# A wheel for every Python, with nothing compiled: AMQPD_KERNEL=python pip wheel .
PLAIN = "bdist_wheel" in sys.argv and os.environ.get("AMQPD_KERNEL") == "python"
setup(ext_modules=extensions() if BUILDS and not PLAIN else [], cmdclass={"build_ext": BuildCompiled})
