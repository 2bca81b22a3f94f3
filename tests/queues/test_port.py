"""What is outside queues/ reaches a queue by its port: nothing there looks behind it.

What is verified: the leader's queue is imported only by the listed modules, imports for type checkers included, and
what it looks like to the rest of its node (`queues/leader.py`, `queues/dispatchable.py`) only by those that dispatch,
look after memory and disk, or repair them; no attribute of its own parts (`queue.backlog`, `.consumers`, ...) is read
of something called a queue; what the port names, the leader's queue has.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import QueuePort
from amqpd.queues.queue import Queue

PACKAGE = Path(__file__).parents[2] / "amqpd"
BEHIND = {"backlog", "consumers", "settings", "removal", "messages", "getters"}
# Names under which queues go.
QUEUES = {"queue", "target", "store", "orphan", "source", "dest", "each"}
LED_HERE = {
    "management/attention/watch.py": "the bounds of a full queue are told by the node that has it",
    "node/queue_registry.py": "the leader's queues are made here",
    "publishing/dead_lettering.py": "a message dies at its leader, and its queue's settings say what becomes of it",
}
IMPORTS = {
    "amqpd.queues.queue": {
        "node/node.py": "the leader's queues are kept and made here",
        "node/queue_registry.py": "they are made here",
        "node/ports.py": "what the parts of the leader know of them",
        "node/queue_ports.py": "it has those that are here, and remote ones beside them",
        "node/led_queue.py": "what clients of other nodes ask of one",
    },
    "amqpd.queues.leader": {
        "management/attention/watch.py": "what needs attention is told by the node that has the queue",
        "management/figures/queue_facts.py": "the time of the first message is in memory where it is",
        "management/figures/conditions.py": "whether consumers hold all that they may is known where they are",
        "management/figures/totals.py": "what was dispatched, and is a queue of this node",
        "management/messages/leader_queues.py": "which of them an operator means",
        "management/messages/operations.py": "an operator's look at what is on this node's disk",
        "node/node.py": "their dead letters come by here",
        "publishing/dead_lettering.py": "a message dies at its leader",
    },
    "amqpd.queues.dispatchable": {
        "flow/congestion.py": "how fast it drains",
        "management/damage/damaged_rows.py": "damage is on this node's disk",
        "management/figures/totals.py": "what was dispatched, and is a queue of this node",
        "management/messages/leader_queues.py": "whether it is gone",
        "management/messages/repair.py": "what is taken out of it",
        "node/dispatching.py": "they are dispatched here, and leave memory",
        "node/node.py": "what was read for it comes by here",
        "node/ports.py": "what the scrub looks at",
        "node/quarantine.py": "all that is dispatched may have a bug, or be damaged",
        "node/queue_registry.py": "they are ended here",
        "node/wakes.py": "they say when to look at them",
        "publishing/copies.py": "what the node publishes itself is dispatched",
        "publishing/ports.py": "what takes long is begun in the name of one",
        "remote/queue.py": "a remote queue says that it has nothing of this kind",
        "scrub.py": "damage is on this node's disk",
        "session/ports.py": "a bug takes one out of service",
        "session/services.py": "a read is of this node's disk",
    },
}
"""Of the leader's queue, of what the rest of the node sees of it, and of what is dispatched: who imports them outside
queues/, and why."""


@cache
def modules() -> dict[str, ast.Module]:
    """What is outside queues/, by its path."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith(("queues/", "_compiled/")):
            found[name] = ast.parse(path.read_text())
    return found


def imports(tree: ast.AST, module: str) -> bool:
    """Whether it imports the module, or something from it, in any way and for whatever use."""
    package, _, last = module.rpartition(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(each.name == module for each in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (
            node.module == module or (node.module == package and any(each.name == last for each in node.names))
        ):
            return True
    return False


@pytest.mark.parametrize("module", IMPORTS)
def test_the_leaders_queue_is_imported_by_the_leader_only(module: str) -> None:
    importing = {name for name, tree in modules().items() if imports(tree, module)}
    assert importing - IMPORTS[module].keys() == set(), "the type of a queue outside queues/ is QueuePort"
    assert IMPORTS[module].keys() - importing == set(), "take these out of the list"


@pytest.mark.parametrize(
    "text",
    [
        "import amqpd.queues.queue",
        "from amqpd.queues.queue import Queue",
        "from amqpd.queues import port, queue",
        "if TYPE_CHECKING:\n    from amqpd.queues.queue import Queue",
        "def f():\n    from amqpd.queues.queue import Queue as Q",
    ],
)
def test_an_import_of_it_is_found(text: str) -> None:
    assert imports(ast.parse(text), "amqpd.queues.queue")


def test_other_imports_are_none_of_it() -> None:
    assert not imports(ast.parse("from amqpd.queues.port import QueuePort\nimport queue"), "amqpd.queues.queue")


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
    # A message of a report is called `each.messages`, a number.
    behind = {
        name: found
        for name, tree in modules().items()
        if (found := [each for each in reads(tree) if not each.startswith("each.messages")])
    }
    assert behind.keys() - LED_HERE.keys() == set(), behind
    assert LED_HERE.keys() - behind.keys() == set(), "take these out of the list"


@pytest.mark.parametrize(
    "text", ["queue.backlog.ready", "self._queue.consumers", "a.queue.settings", "target.messages"]
)
def test_a_look_behind_it_is_found(text: str) -> None:
    assert len(reads(ast.parse(text))) == 1


def test_the_leader_has_all_that_the_port_names() -> None:
    (port,) = (each for each in ast.parse((PACKAGE / "queues/port.py").read_text()).body if is_the_port(each))
    assert isinstance(port, ast.ClassDef)
    named = {
        each.name
        for each in port.body
        if isinstance(each, ast.FunctionDef) and "abstractmethod" in map(ast.unparse, each.decorator_list)
    }
    assert {"publish", "capacity", "settle", "requeue", "get", "purging", "consume", "cancel", "statistics"} <= named
    assert named - has(vars(LeaderQueue)) - vars(Queue).keys() == set()


def has(members: Mapping[str, object]) -> set[str]:
    """Of the members of a class those that are no requests to classes below it."""
    return {name for name, each in members.items() if not getattr(each, "__isabstractmethod__", False)}


def is_the_port(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == QueuePort.__name__
