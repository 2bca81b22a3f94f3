"""What is outside queues/ reaches a queue by its port: nothing there looks behind it.

What is verified: no attribute that only the home's own parts have (`queue.backlog`, `.consumers`, ...) is read of
something called a queue; what the port names, the home's queue has. The node looks after the memory and the disk of
queues at home, and operators repair them: these are listed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from amqpd.queues.port import QueuePort
from amqpd.queues.queue import Queue

PACKAGE = Path(__file__).parents[2] / "amqpd"
BEHIND = {"backlog", "consumers", "settings", "mortality", "messages", "getters"}
# Names under which queues go.
QUEUES = {"queue", "target", "store", "orphan", "source", "dest", "each"}
AT_HOME = {
    "audit/coverage/anchors.py": "what stands in a queue is said by the node that has it",
    "audit/coverage/coverage.py": "the same",
    "node/dispatching.py": "the home's queues are dispatched here, and leave memory",
    "node/queue_registry.py": "the home's queues are made here",
    "node/orphans.py": "parked messages are on this node's disk",
    "publishing/dead_lettering.py": "a message dies at home, and its queue's settings say what becomes of it",
    "scrub/found.py": "damage is on this node's disk",
}


def reads(tree: ast.AST) -> list[str]:
    """`queue.backlog` and the like, however the queue is reached: `self.queue.backlog`, `x.queue.backlog`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in BEHIND:
            of = node.value
            name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
            if name.lstrip("_") in QUEUES:
                found.append(f"{ast.unparse(node)}:{node.lineno}")
    return found


def test_nothing_outside_looks_behind_the_port() -> None:
    behind = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith(("queues/", "_compiled/")) and (found := reads(ast.parse(path.read_text()))):
            behind[name] = found
    # A message of a report is called `each.messages`, a number.
    behind = {
        name: left
        for name, found in behind.items()
        if (left := [each for each in found if not each.startswith("each.messages")])
    }
    assert behind.keys() - AT_HOME.keys() == set(), behind
    assert AT_HOME.keys() - behind.keys() == set(), "take these out of the list"


@pytest.mark.parametrize(
    "text", ["queue.backlog.ready", "self._queue.consumers", "a.queue.settings", "target.messages"]
)
def test_a_look_behind_it_is_found(text: str) -> None:
    assert len(reads(ast.parse(text))) == 1


def test_the_home_has_all_that_the_port_names() -> None:
    (port,) = (each for each in ast.parse((PACKAGE / "queues/port.py").read_text()).body if is_the_port(each))
    assert isinstance(port, ast.ClassDef)
    named = {
        each.name
        for each in port.body
        if isinstance(each, ast.FunctionDef) and "abstractmethod" in map(ast.unparse, each.decorator_list)
    }
    assert {"publish", "capacity", "settle", "requeue", "get", "purging", "consume", "cancel", "statistics"} <= named
    assert named - vars(Queue).keys() == set()


def is_the_port(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == QueuePort.__name__
