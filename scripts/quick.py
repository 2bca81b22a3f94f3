"""`make quick`: style, types, and the tests of what changed, within a minute.

What comes in: the files that differ from the merge base with main, and those of the working tree. What goes out: what
ruff, mypy and pytest say, what was left out, and an exit code: 0 when nothing that ran failed.
Rules: 1. `tests/` mirrors `amqpd/`, so the tests of a file follow from its path (`tests_of`). 2. What takes long is
left to `make test` and said; nothing is left out without a word. 3. The plain kernel runs, so nothing is compiled.
Not here: what has to hold before a change lands (`make lint test`).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from time import monotonic

ROOT = Path(__file__).parents[1]
SECONDS = 55.0
"""for everything; then tests are stopped"""
WORKERS = 2
# Whole brokers, other programs, JVMs, measurements: minutes each.
LARGE = ("admin", "audit_proof", "clients", "cost", "faults", "model", "spark", "spark_cluster", "stalls", "suites")
# Ten seconds and more on the plain kernel (from pytest --junitxml); run when they or their module change.
LONG = frozenset(
    {
        "tests/audit/test_live.py",
        "tests/bench/test_bench_end_to_end.py",
        "tests/bench/test_bench_private_amqpd.py",
        "tests/cluster/test_directory_etcd.py",
        "tests/connection/test_fuzz.py",
        "tests/datadir/test_pairing.py",
        "tests/exchanges/test_cache_bounds.py",
        "tests/journal/test_sqlite_crash.py",
        "tests/flow/test_unfinished.py",
        "tests/node/test_memory_bounds.py",
        "tests/process/test_no_garbage.py",
        "tests/session/test_between_steps.py",
        "tests/topology/test_sizes.py",
    }
)
# Rules of the whole tree: they run whatever changed.
ALWAYS = ("tests/test_arrows.py", "tests/test_house.py", "tests/test_project.py", "tests/test_words.py")


@dataclass
class Selection:
    """Files of tests to run, nearest to the change first, and what `make test` has beside them."""

    files: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def add(self, files: Iterable[str]) -> None:
        self.files += [file for file in files if file not in self.files]


def is_large(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return parts[0] == "tests" and len(parts) > 1 and parts[1] in LARGE


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(text: str) -> Iterator[str]:
    """Every module that a file may import by name: of `from a import b` both `a` and `a.b`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tests_of(path: str, tests: Collection[str], read: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Of a source file: the tests named after it, and those of its package. Of a module at the top of amqpd/ that has
    neither: what imports it."""
    parts = PurePosixPath(path).parts
    if parts[0] in ("bench", "scripts"):
        parts = ("amqpd", *parts) if parts[0] == "bench" else ("amqpd", parts[-1])
    stem = PurePosixPath(path).stem
    if len(parts) == 2:
        named = [f"tests/test_{stem}.py"]
        folder = f"tests/{stem}/"
    else:
        folder = f"tests/{parts[1]}/"
        named = [f"{folder}test_{stem}.py"]
    near = [each for each in named if each in tests]
    beside = sorted(each for each in tests if each.startswith(folder) and each not in near)
    if not near and not beside and path.startswith("amqpd/"):
        name = module_name(path)
        beside = sorted(each for each in tests if not is_large(each) and name in imports(read(each)))
    return near, beside


def select(changed: Iterable[str], tests: Collection[str], read: Callable[[str], str]) -> Selection:
    """`tests`: every test file there is, as a path from the root; `read` gives the text of one."""
    selection = Selection()
    rest: list[str] = []
    for path in sorted(changed):
        if path in tests:
            if is_large(path):
                selection.left.append(path)
            else:
                selection.add([path])
        elif not path.endswith((".py", ".pyx", ".pxi", ".pxd", ".pyi")):
            continue  # documents and settings of the project: tests/test_project.py
        elif path.startswith("tests/"):
            folder = f"{PurePosixPath(path).parent}/"
            rest += [each for each in tests if each.startswith(folder)] or [path]
        elif path.startswith(("admin/", "spark/", "conformance/", "examples/")):
            selection.left.append(path)
        else:
            near, beside = tests_of(path, tests, read)
            selection.add(near)
            rest += beside or ([] if near else [path])
    for path in rest:
        if path not in tests or is_large(path) or (path in LONG and path not in selection.files):
            selection.left.append(path)
        else:
            selection.add([path])
    selection.add(path for path in ALWAYS if path in tests)
    selection.left = sorted(set(selection.left))
    return selection


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_files() -> set[str]:
    """Since the merge base with main, and in the working tree; what is gone is not among them."""
    bases = (git("merge-base", "HEAD", branch) for branch in ("main", "origin/main"))
    [base] = next((found for found in bases if found), ["HEAD"])
    files = {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}
    return {file for file in files if (ROOT / file).exists()}


class Deadline:
    """A plugin of pytest: ends the run in time, and says so."""

    def __init__(self, until: float, now: Callable[[], float] = monotonic) -> None:
        self.until = until
        self.now = now
        self.failed = False

    def pytest_runtest_logreport(self, report: object) -> None:
        import pytest

        self.failed = self.failed or bool(getattr(report, "failed", False))
        if self.now() > self.until:
            pytest.exit(
                "the minute has passed, and not every test of what changed ran: `make test` runs them",
                returncode=int(self.failed),
            )


def main() -> int:
    began = monotonic()
    os.chdir(ROOT)
    os.environ["AMQPD_KERNEL"] = "python"
    python = sys.executable
    types = subprocess.Popen([python, "-m", "mypy"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        style = [
            subprocess.run([python, "-m", "ruff", *arguments], check=False).returncode
            for arguments in (["check", "--quiet", "."], ["format", "--check", "--quiet", "."])
        ]
        tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
        selection = select(changed_files(), tests, lambda path: (ROOT / path).read_text())
        import pytest

        deadline = Deadline(began + SECONDS)
        arguments = ["-q", "-n", str(WORKERS), "-m", "not slow and not heavy", "--no-header", *selection.files]
        ran = int(pytest.main([*arguments, *sys.argv[1:]], plugins=[deadline]))
        said, _ = types.communicate()
    finally:
        types.kill()
        types.wait()
    print(said, end="")
    if selection.left:
        print("left to `make test`:", *selection.left)
    print(f"{monotonic() - began:.0f} s")
    return int(any([*style, ran, types.returncode]))


if __name__ == "__main__":
    sys.exit(main())
