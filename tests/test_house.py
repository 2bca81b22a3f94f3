"""The rules of the code that a program can check (after TigerBeetle's tidy test and trio's test of its exports).

What is verified: pure modules import nothing impure, not even through another module of amqpd; no file and no
function grows past its limit; errors are not swallowed; every module and every public class says what it is, a class
in a sentence; loggers name a component; banned names.
Not verified: whether a docstring is true, whether a bound has its reason. That is for review.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from amqpd.compiled import COMPILED

ROOT = Path(__file__).parents[1]
CHECKED = ("amqpd", "admin", "spark", "tests", "bench", "conformance", "examples", "scripts")

# Packages, and modules of others, where I/O, clocks, chance and threads are. Everything else of amqpd is pure: bytes
# and values in, bytes and effects out (ARCHITECTURE.md, "The walk").
SHELL = (
    "amqpd.__main__",
    "amqpd.audit.files",
    "amqpd.backup",
    "amqpd.broker",
    "amqpd.checking",
    "amqpd.cluster.data_links",
    "amqpd.cluster.deleted_queues",
    "amqpd.cluster.directory",
    "amqpd.cluster.link_reports",
    "amqpd.cluster.incarnations",
    "amqpd.cluster.own_disk",
    "amqpd.cluster.place",
    "amqpd.cluster.queries",
    "amqpd.cluster.revision_runner",
    "amqpd.cluster.runner",
    "amqpd.cluster.unclaimed_queues",
    "amqpd.cluster.search",
    "amqpd.cluster.sessions",
    "amqpd.cluster.swaps",
    "amqpd.cluster.set_requests",
    "amqpd.commands",
    "amqpd.compiled",
    "amqpd.config",
    "amqpd.datadir",
    "amqpd.journal.sqlite",
    "amqpd.journal.writer",
    "amqpd.management",
    "amqpd.peers.links",
    "amqpd.process",
    "amqpd.pump",
    "amqpd.scrub",
    "amqpd.setting_tables",
    "amqpd.setting_types",
    "amqpd.security.authentication",
    "amqpd.storage",
    "amqpd.topology.metadata",
    "amqpd.transport",
)
# I/O, clocks, randomness, threads: what would make a replay differ from the run.
IMPURE = frozenset(
    {
        "asyncio",
        "alembic",
        "argon2",
        "concurrent",
        "http",
        "httpx2",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "psutil",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlalchemy",
        "sqlite3",
        "ssl",
        "structlog",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "trio",
        "urllib",
        "uuid",
    }
)
# What a pure module may import all the same: {(module, import): reason}.
ALLOWED = {
    ("amqpd.compiled", "os"): "whether what is compiled runs is read from the environment, once, at import",
    ("amqpd.compiled", "pathlib"): "where that is, before anything else is imported",
}
# Names that say nothing; what to write instead is the noun of what is in there.
BANNED_NAMES = frozenset({"utils", "util", "manager", "helper", "helpers", "misc", "common"})

# A module is a subject: 60 to 250 lines are usual, and a subject is not cut in two to keep a length.
LINES_MAX = 600
FUNCTION_LINES_MAX = 70
# Fewer are no sentence with a subject: "Of one node." says nothing in an editor's hover.
DOCSTRING_WORDS_MIN = 5
# Functions over the limit: {"path:name": lines}. The number only goes down; a new one does not come in.
LONG_FUNCTIONS: dict[str, int] = {}


@dataclass(frozen=True)
class Facts:
    """What the rules ask of one file; its tree is forgotten, since all of them are millions of objects."""

    path: str
    silent: bool
    """it has no docstring, and is not empty: a file of nothing is a package marker"""
    functions: tuple[tuple[str, int], ...]
    """names, and how many lines"""
    swallowed: tuple[int, ...]
    """lines where errors are swallowed"""
    undocumented: tuple[str, ...]
    """public classes without a docstring"""
    terse: tuple[str, ...]
    """public classes whose docstring has fewer than `DOCSTRING_WORDS_MIN` words"""
    loggers: tuple[int, ...]
    """lines where a logger is made with another key than `component`"""


@functools.cache
def paths() -> tuple[str, ...]:
    found = [path for folder in CHECKED for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [path for path in found if "build" not in path.relative_to(ROOT).parts]  # of `pip install ./spark`
    return tuple(path.relative_to(ROOT).as_posix() for path in found)


def compiled_files() -> list[str]:
    """What Cython compiles is not Python's grammar: only its length is checked."""
    found = (path for path in (ROOT / "amqpd").rglob("*.p??") if path.suffix in (".pyx", ".pxd", ".pxi"))
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def facts_of(path: str, tree: ast.Module) -> Facts:
    nodes = list(ast.walk(tree))
    docstrings = [
        (node.name, ast.get_docstring(node) or "")
        for node in nodes
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    return Facts(
        path,
        silent=bool(tree.body) and not ast.get_docstring(tree),
        functions=tuple(
            (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        swallowed=tuple(
            node.lineno
            for node in nodes
            if (isinstance(node, ast.ExceptHandler) and swallows(node))
            or (
                isinstance(node, ast.Call)
                and len(node.args) == 1
                and ast.unparse(node) in ("suppress(Exception)", "contextlib.suppress(Exception)")
            )
        ),
        undocumented=tuple(name for name, text in docstrings if not text),
        terse=tuple(name for name, text in docstrings if 0 < len(text.split()) < DOCSTRING_WORDS_MIN),
        loggers=tuple(node.lineno for node in nodes if isinstance(node, ast.Call) and misnamed(node)),
    )


@functools.cache
def facts() -> tuple[Facts, ...]:
    return tuple(facts_of(path, ast.parse((ROOT / path).read_text())) for path in paths())


@functools.cache
def modules() -> dict[str, Path]:
    """amqpd's modules by name; a package is its __init__."""
    return {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): ROOT / path
        for path in paths()
        if path.startswith("amqpd/")
    }


def typing_only(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:` is not there at run time."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not typing_only(child):
            yield child
            yield from statements(child)


def imports(name: str, tree: ast.Module, known: frozenset[str]) -> set[str]:
    """Every module that `name` imports, wherever in the file; of amqpd, the packages above it too: they run
    first."""
    found: set[str] = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                is_package = any(other.startswith(name + ".") for other in known)
                parts = name.split(".")
                above = parts[: len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*above, base] if base else above)
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in known}
    return found | {
        each.rsplit(".", depth)[0] for each in found if each in known for depth in range(1, each.count(".") + 1)
    }


def imports_of(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    known = frozenset(trees)
    return {name: imports(name, tree, known) for name, tree in trees.items()}


@functools.cache
def imports_of_amqpd() -> dict[str, set[str]]:
    return imports_of({name: ast.parse(path.read_text()) for name, path in modules().items()})


def breach(start: str, graph: dict[str, set[str]]) -> list[str] | None:
    """The chain of imports from a pure module to something impure, or None."""
    chains = [[start]]
    seen = {start}
    while chains:
        chain = chains.pop(0)
        for target in sorted(graph[chain[-1]]):
            if target.partition(".")[0] in IMPURE and (chain[-1], target) not in ALLOWED:
                return [*chain, target]
            if target in graph and target not in seen:
                seen.add(target)
                chains.append([*chain, target])
    return None


def is_pure(name: str) -> bool:
    return not any(name == shell or name.startswith(shell + ".") for shell in SHELL)


@pytest.mark.parametrize("name", sorted(name for name in modules() if is_pure(name)))
def test_pure_modules_import_nothing_impure(name: str) -> None:
    chain = breach(name, imports_of_amqpd())
    assert chain is None, f"{' imports '.join(chain or [])}: hand the time, the bytes, the random number in instead"


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("import time", ["amqpd.queues.a", "time"]),
        ("import os.path as p", ["amqpd.queues.a", "os.path"]),
        ("def f():\n    from random import choice", ["amqpd.queues.a", "random"]),
        ("from amqpd.shell import x", ["amqpd.queues.a", "amqpd.shell", "trio"]),
        ("from amqpd import shell", ["amqpd.queues.a", "amqpd.shell", "trio"]),
        ("from .. import shell", ["amqpd.queues.a", "amqpd.shell", "trio"]),
        ("from .b import y", ["amqpd.queues.a", "amqpd.queues.b", "threading"]),
        ("from . import b", ["amqpd.queues.a", "amqpd.queues.b", "threading"]),
        ("import amqpd.deep.leaf", ["amqpd.queues.a", "amqpd.deep", "socket"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trio", None),
        ("import pamqp.commands\nfrom dataclasses import dataclass", None),
    ],
)
def test_the_check_of_imports_finds_what_it_should(text: str, chain: list[str] | None) -> None:
    trees = {
        "amqpd": ast.parse(""),
        "amqpd.queues": ast.parse(""),
        "amqpd.queues.a": ast.parse(text),
        "amqpd.queues.b": ast.parse("import threading"),
        "amqpd.shell": ast.parse("import trio"),
        "amqpd.deep": ast.parse("import socket"),
        "amqpd.deep.leaf": ast.parse(""),
    }
    assert breach("amqpd.queues.a", imports_of(trees)) == chain


def test_the_shell_is_not_of_ghosts() -> None:
    assert set(SHELL) <= set(modules())


@pytest.mark.parametrize("path", [*paths(), *compiled_files()])
def test_files_stay_readable(path: str) -> None:
    lines = len((ROOT / path).read_text().splitlines())
    assert lines <= LINES_MAX, f"{path} has {lines} lines: it has become two subjects, cut it between them"


def long_functions() -> dict[str, int]:
    return {
        f"{each.path}:{name}": lines
        for each in facts()
        for name, lines in each.functions
        if lines > FUNCTION_LINES_MAX
    }


def test_functions_stay_readable() -> None:
    grown = {name: lines for name, lines in long_functions().items() if lines > LONG_FUNCTIONS.get(name, 0)}
    assert not grown, f"functions of more than {FUNCTION_LINES_MAX} lines"


def test_the_ratchet_of_long_functions_only_tightens() -> None:
    now = long_functions()
    loose = {name: lines for name, lines in LONG_FUNCTIONS.items() if now.get(name, 0) < lines}
    assert not loose, "these became shorter: write the new number, or take them out"


def swallows(handler: ast.ExceptHandler) -> bool:
    """A bare except; or a broad one whose body does nothing with the exception."""
    if handler.type is None:
        return True
    broad = {"Exception", "BaseException"} & {
        node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)
    }
    return bool(broad) and all(
        isinstance(each, ast.Pass | ast.Continue)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        or (isinstance(each, ast.Return) and (each.value is None or isinstance(each.value, ast.Constant)))
        for each in handler.body
    )


def test_no_error_is_swallowed() -> None:
    found = [f"{each.path}:{line}" for each in facts() for line in each.swallowed]
    assert not found, "name the exceptions that are meant, and do something about them"


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        ("except:\n    raise", True),
        ("except Exception:\n    pass", True),
        ("except (ValueError, BaseException):\n    ...", True),
        ("except Exception:\n    return None", True),
        ("except Exception as e:\n    log(e)", False),
        ("except ValueError:\n    pass", False),
    ],
)
def test_the_check_of_handlers_finds_what_it_should(body: str, bad: bool) -> None:
    [statement] = ast.parse("try:\n    f()\n" + body).body
    assert isinstance(statement, ast.Try)
    assert swallows(statement.handlers[0]) is bad


def test_every_module_says_what_it_is() -> None:
    silent = [each.path for each in facts() if each.silent]
    assert not silent


def undocumented() -> dict[str, list[str]]:
    """Of amqpd, by package."""
    found: dict[str, list[str]] = {}
    for each in facts():
        root, _, rest = each.path.partition("/")
        if root == "amqpd" and "migrations" not in each.path:
            package = rest.partition("/")[0].removesuffix(".py")
            found.setdefault(package, []).extend(f"{rest}:{name}" for name in each.undocumented)
    return found


def test_public_classes_say_what_they_are_for() -> None:
    assert {package: names for package, names in undocumented().items() if names} == {}


def test_public_classes_say_it_in_a_sentence() -> None:
    parts = ("amqpd/", "admin/amqpd_admin/", "spark/amqpd_spark/")
    found = [f"{each.path}:{name}" for each in facts() if each.path.startswith(parts) for name in each.terse]
    assert not found, "say what it is, with a noun: the sentence is read alone, in an editor's hover"


def misnamed(call: ast.Call) -> bool:
    """`get_logger(part="...")`: operators filter by `component`."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "get_logger"
    return named and any(keyword.arg not in (None, "component") for keyword in call.keywords)


def test_the_log_names_components() -> None:
    found = [f"{each.path}:{line}" for each in facts() if each.path.startswith("amqpd/") for line in each.loggers]
    assert not found, 'structlog.get_logger(component="...")'


@pytest.mark.parametrize(
    ("text", "undocumented", "terse", "loggers"),
    [
        ("class A: ...", ("A",), (), ()),
        ("class _A: ...", (), (), ()),
        ('class A:\n    """Of one node."""\n    class B: ...', ("B",), ("A",), ()),
        ('class A:\n    """The links of one node."""', (), (), ()),
        ('class _A:\n    """Of one node."""', (), (), ()),
        ("log = structlog.get_logger(part='a')", (), (), (1,)),
        ("log = structlog.get_logger(component='a')", (), (), ()),
    ],
)
def test_the_checks_of_docstrings_and_loggers_find_what_they_should(
    text: str, undocumented: tuple[str, ...], terse: tuple[str, ...], loggers: tuple[int, ...]
) -> None:
    found = facts_of("f", ast.parse(text))
    assert (found.undocumented, found.terse, found.loggers) == (undocumented, terse, loggers)


def test_names_say_something() -> None:
    found = [path for path in paths() if BANNED_NAMES & set(Path(path).with_suffix("").parts)]
    assert not found, "call it after the noun that is in it"


@pytest.mark.parametrize("module", COMPILED)
def test_no_compiled_module_calls_inside_of_a_slice(module: str) -> None:
    """mypyc evaluates the bounds of some slices twice: `view[: socket.recv_into(buffer)]` received twice."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Slice):
            inside = [each for bound in (node.lower, node.upper, node.step) if bound for each in ast.walk(bound)]
            impure = [each for each in inside if isinstance(each, ast.Call | ast.NamedExpr)]
            assert not impure, f"{path.name}:{impure[0].lineno}: give it a name first"
