"""Imports go one way: which package may know which, those for type checkers included.

What is verified: every import of `amqpd` is an arrow of the list, and each arrow of the list goes to what stands
above it there; no file is in a circle with another.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the ground up: what each may import stands before it.
ARROWS = {
    "errors": "",
    "faults": "errors",
    "kernel": "",
    "vocabulary": "",
    "wire": "",
    "message": "kernel wire",
    "exchanges": "vocabulary wire message",
    "topology": "vocabulary wire exchanges",
    "peers": "",
    "replication": "peers",
    "peers.links": "errors vocabulary peers",
    "journal": "errors kernel peers replication",
    "audit": "vocabulary message",
    "tracing": "kernel vocabulary wire message",
    "setting_types": "vocabulary",
    "setting_tables": "setting_types",
    "config": "vocabulary setting_types setting_tables",
    "security": "vocabulary wire topology",
    "queues": "kernel vocabulary wire message journal audit",
    "remote": "kernel vocabulary message peers journal audit queues",
    "audit.coverage": "vocabulary audit queues",
    "flow": "kernel vocabulary message topology journal queues",
    "session": "faults kernel vocabulary wire topology journal audit tracing security queues flow",
    "publishing": "kernel vocabulary wire message exchanges topology journal audit tracing queues flow session",
    "events": "faults kernel vocabulary wire message topology audit queues session publishing",
    "node": "faults kernel vocabulary message exchanges topology journal audit tracing security queues remote "
    "audit.coverage flow session publishing events",
    "declarations": "vocabulary wire exchanges topology security queues node",
    "channels": "kernel vocabulary wire message audit queues session flow publishing node declarations",
    "methods": "kernel vocabulary wire message audit tracing queues flow session publishing node declarations "
    "channels",
    "connection": "faults kernel vocabulary wire flow session publishing node methods",
    "storage": "",
    "journal.sqlite": "journal peers replication storage",
    "security.authentication": "vocabulary topology security",
    "topology.metadata": "errors vocabulary wire exchanges topology security.authentication",
    "topology.metadata.sqlite": "storage topology.metadata",
    "topology.metadata.etcd": "topology.metadata",
    "audit.files": "errors vocabulary audit setting_tables audit.coverage node storage",
    "transport": "errors kernel vocabulary setting_tables config node connection storage",
    "pump": "faults kernel vocabulary journal flow session node connection transport",
    "datadir": "errors faults journal peers storage journal.sqlite topology.metadata topology.metadata.sqlite "
    "topology.metadata.etcd",
    "cluster": "errors faults vocabulary peers peers.links journal replication remote config node storage "
    "journal.sqlite topology.metadata",
    "definitions": "vocabulary wire exchanges topology security queues",
    "management": "errors faults kernel vocabulary wire message exchanges topology journal audit security queues "
    "flow session publishing node declarations storage security.authentication topology.metadata "
    "topology.metadata.sqlite datadir definitions",
    "backup": "errors faults journal node storage journal.sqlite topology.metadata topology.metadata.sqlite "
    "datadir management",
    "checking": "vocabulary journal node storage journal.sqlite topology.metadata topology.metadata.sqlite "
    "audit.files datadir backup",
    "scrub": "journal config queues node journal.sqlite management",
    "compiled": "",
    "process": "errors faults vocabulary setting_tables config tracing security session publishing node storage "
    "journal.sqlite security.authentication topology.metadata topology.metadata.etcd datadir management backup scrub "
    "compiled",
    "broker": "errors vocabulary topology journal replication cluster config security session node methods "
    "journal.sqlite security.authentication topology.metadata audit.files transport pump datadir "
    "management backup scrub process",
    "commands": "errors faults vocabulary topology replication setting_types config declarations "
    "journal.sqlite security.authentication topology.metadata cluster datadir definitions management backup checking "
    "process broker",
    "__main__": "errors vocabulary management process",
}


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "amqpd").rglob("*.py")):
        if not {"_compiled", "migrations"} & set(path.parts):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.AST, known: Mapping[str, object]) -> Iterator[str]:
    """Modules of amqpd, wherever in the file, whoever they are for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module in known:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


@functools.cache
def graph() -> dict[str, frozenset[str]]:
    known = modules()
    return {
        name: frozenset(imported(ast.parse(path.read_text()), known)) - {name, "amqpd"}
        for name, path in known.items()
    }


def place(name: str) -> str:
    """Of a module: the longest entry of ARROWS that it is in."""
    parts = name.split(".")[1:]
    heads = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((head for head in heads if head in ARROWS), "")


def arrows() -> set[tuple[str, str]]:
    found = {(place(name), place(target)) for name, targets in graph().items() for target in targets}
    return {(start, end) for start, end in found if start != end}


def allowed(listed: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(start, end) for start, ends in listed.items() for end in ends.split()}


def circles(of: Mapping[str, frozenset[str]]) -> list[set[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(of[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            component = set(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for name in of:
        if name not in index:
            visit(name)
    return found


def test_every_module_has_its_place() -> None:
    assert {name for name in modules() if name != "amqpd" and not place(name)} == set()


@pytest.mark.parametrize("start", ARROWS)
def test_a_package_imports_what_it_may(start: str) -> None:
    assert {end for begin, end in arrows() if begin == start} <= set(ARROWS[start].split())


def test_arrows_go_down() -> None:
    order = list(ARROWS)
    up = {(start, end) for start, end in allowed(ARROWS) if order.index(end) >= order.index(start)}
    assert not up


def test_no_arrow_is_listed_in_vain() -> None:
    assert allowed(ARROWS) - arrows() == set(), "take these out of the list"


def test_no_file_is_in_a_circle() -> None:
    """Except the kernel's face and what stands behind it."""
    assert [circle for circle in circles(graph()) if {place(name) for name in circle} != {"kernel"}] == []


def test_the_circle_is_found_wherever_an_import_stands() -> None:
    known = {"amqpd.a": 0, "amqpd.b": 0, "amqpd.c": 0, "amqpd": 0}
    texts = {
        "amqpd.a": "from amqpd import b",
        "amqpd.b": "if TYPE_CHECKING:\n    from amqpd.c import C",
        "amqpd.c": "def f():\n    import amqpd.a",
        "amqpd": "",
    }
    of = {name: frozenset(imported(ast.parse(text), known)) for name, text in texts.items()}
    assert circles(of) == [{"amqpd.a", "amqpd.b", "amqpd.c"}]
