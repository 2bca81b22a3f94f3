"""What an import would do: steps, conflicts, what is left out, what `prune` takes away and what it keeps."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import Any

from amqpd.definitions.description import SHOWN_MAX, describe, describe_conflicts, summary
from amqpd.definitions.difference import Difference, difference
from amqpd.definitions.document import read_definitions
from amqpd.topology.plans import create_vhost
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Delete,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    Put,
    QueueRecord,
    Record,
    UserRecord,
)
from amqpd.wire.values import arguments_key


def topology_of(*records: Record) -> Topology:
    topology = Topology()
    topology.apply([*create_vhost("/"), *(Put(record) for record in records)])
    return topology


def compared(topology: Topology, prune: bool = False, **sections: Any) -> Difference:
    numbers = itertools.count(1)
    return difference(topology, read_definitions(json.dumps(sections)), lambda: next(numbers), prune=prune)


def binding(source: str, queue: str, key: str = "", durable: bool = True, **arguments: Any) -> BindingRecord:
    return BindingRecord("/", source, queue, "queue", key, durable, arguments, arguments_key(arguments))


def queue(name: str, **more: Any) -> QueueRecord:
    return QueueRecord("/", name, 1, **more)


def of(vhost: str = "/", **item: Any) -> dict[str, Any]:
    return {"vhost": vhost, **item}


def test_new_things_come_in_an_order_in_which_nothing_is_missing() -> None:
    found = compared(
        Topology(),
        bindings=[of("v", source="x", destination="q", destination_type="queue")],
        queues=[of("v", name="q")],
        exchanges=[of("v", name="x", type="fanout")],
        permissions=[of("v", user="u", configure="", write="", read="")],
        users=[{"name": "u", "tags": ""}],
        vhosts=[{"name": "v"}],
    )
    assert not found.conflicts
    made = [change.record.key for change in found.changes if isinstance(change, Put)]
    assert made[0] == ("vhost", "v")
    assert made[-5:] == [
        ("user", "u"),
        ("permission", "v", "u"),
        ("exchange", "v", "x"),
        ("queue", "v", "q"),
        ("binding", "v", "x", "queue", "q", "", ""),
    ]


def test_a_queue_that_exists_otherwise_is_a_conflict_with_each_difference() -> None:
    topology = topology_of(
        queue("same", arguments={"x-queue-type": "classic", "at": datetime.fromtimestamp(5, UTC)}),
        queue("other", durable=False, arguments={"x-max-length": 5, "x": 1}),
        queue("mine", exclusive=True, durable=False, owner="c1"),
        ExchangeRecord("/", "x", "topic"),
    )
    found = compared(
        topology,
        queues=[
            of(name="same", arguments={"at": 5}),
            of(name="other", arguments={"x-max-length": 10, "x": True}),
            of(name="mine"),
            of(name="new"),
        ],
        exchanges=[of(name="x", type="fanout", arguments={"alternate-exchange": "y"})],
    )
    assert describe_conflicts(found) == [
        "! exchange 'x' in '/': type is topic here, fanout in the file, alternate-exchange is none here, "
        "y in the file",
        "! queue 'mine' in '/': a connection has an exclusive one of that name",
        "! queue 'other' in '/': durable is false here, true in the file, x-max-length is 5 here, 10 in the file, "
        "x is 1 here, true in the file",
    ]
    assert [step.record.key[2] for step in found.steps] == ["new"]
    assert found.unchanged["queues"] == 1


def test_what_cannot_be_here_is_a_conflict() -> None:
    file = {
        "exchanges": [of(name="x", type="x-bogus"), of("gone", name="y", type="fanout")],
        "queues": [of(name="s", type="stream"), of(name="t", arguments={"x-max-length": -1})],
        "permissions": [of(user="nobody", configure="", write="", read="")],
        "bindings": [
            of(source="amq.headers", destination="q", destination_type="queue", arguments={"x-match": "bogus"})
        ],
    }
    topology = topology_of(queue("q"))
    found = difference(topology, read_definitions(json.dumps(file)), lambda: 1)
    assert found.steps == []
    reasons = [conflict.partition(": ")[2] for conflict in found.conflicts]
    assert reasons[:4] == [
        "there is no user 'nobody', and the file has none",
        "unknown exchange type 'x-bogus'",
        "there is no virtual host 'gone', and the file has none",
        "invalid arg 'x-queue-type' for queue 's' in vhost '/': \"unsupported queue type 'stream'\"",
    ]
    assert len(reasons) == 6
    missing = difference(topology, read_definitions("{}", "gone"), lambda: 1)
    assert missing.conflicts == ["there is no virtual host 'gone': add it first"]


def test_a_binding_without_an_end_is_left_out() -> None:
    found = compared(topology_of(), bindings=[of(source="amq.topic", destination="q", destination_type="queue")])
    assert found.left_out == [
        "binding 'amq.topic' -> queue 'q' in '/': one of its ends is not there, nor in the file"
    ]
    assert not found.conflicts


def test_bindings_that_are_the_same_in_json_are_one() -> None:
    moment = datetime.fromtimestamp(5, UTC)
    topology = topology_of(queue("q"), binding("amq.headers", "q", at=moment), binding("amq.headers", "q", at=5))
    request = of(source="amq.headers", destination="q", destination_type="queue")
    found = compared(topology, bindings=[{**request, "arguments": {"at": 5}}, {**request, "arguments": {"at": 5.0}}])
    assert found.unchanged["bindings"] == 1
    assert [step.record.arguments for step in found.steps] == [{"at": 5.0}]


def test_a_binding_is_durable_when_both_ends_are() -> None:
    found = compared(
        topology_of(queue("kept"), queue("transient", durable=False)),
        bindings=[
            of(source="amq.topic", destination="kept", destination_type="queue"),
            of(source="amq.topic", destination="transient", destination_type="queue"),
        ],
    )
    assert [step.record.durable for step in found.steps] == [True, False]


def test_an_import_stays_within_the_queues_that_a_virtual_host_may_have() -> None:
    limit = ParameterRecord("/", "vhost-limits", "limits", {"max-queues": 2})
    names = [of(name=name) for name in "abc"]
    found = compared(topology_of(queue("a"), limit), queues=names)
    assert found.conflicts == ["virtual host '/': 2 more queues would make 3, its limit is 2"]
    assert not compared(topology_of(queue("a"), limit), queues=names[:2]).conflicts
    raised = of(component="vhost-limits", name="limits", value={"max-queues": 3})
    assert not compared(topology_of(queue("a"), limit), queues=names, parameters=[raised]).conflicts
    lowered = of(component="vhost-limits", name="limits", value={"max-queues": 0})
    assert not compared(topology_of(queue("a")), queues=names[:1], parameters=[lowered]).conflicts


def test_a_virtual_host_of_which_only_the_name_is_said_stays_as_it_is() -> None:
    topology = Topology()
    topology.apply(create_vhost("/", "the first"))
    assert compared(topology, vhosts=[{"name": "/"}]).steps == []
    [step] = compared(topology, vhosts=[{"name": "/", "metadata": {"description": "x"}}]).steps
    assert step.detail == "description the first -> x"


# -- prune


def pruned(topology: Topology, **sections: Any) -> list[str]:
    found = compared(topology, prune=True, **sections)
    return [line for line in describe(found) if line.startswith(("-", "("))]


def test_prune_looks_only_into_sections_that_the_file_has() -> None:
    topology = topology_of(queue("q"), UserRecord("u"), binding("amq.topic", "q"))
    assert pruned(topology) == []
    assert pruned(topology, bindings=[]) == ["- binding 'amq.topic' -> queue 'q' in '/'"]
    assert pruned(topology, queues=[]) == ["- queue 'q' in '/': with 1 binding and its messages"]
    assert pruned(topology, users=[]) == ["- user 'u'"]


def test_prune_takes_bindings_along_and_leaves_what_is_the_brokers_or_of_clients() -> None:
    topology = topology_of(
        queue("q"),
        queue("transient", durable=False),
        queue("mine", durable=False, exclusive=True, owner="c1"),
        ExchangeRecord("/", "x", "topic"),
        ExchangeRecord("/", "stays", "topic", durable=False),
        binding("x", "q"),
        binding("x", "mine", durable=False),
        binding("amq.topic", "transient", durable=False),
    )
    found = compared(topology, prune=True, queues=[], exchanges=[], bindings=[])
    assert pruned(topology, queues=[], exchanges=[], bindings=[]) == [
        "- exchange 'x' in '/': with 2 bindings",
        "- queue 'q' in '/': with its messages",
    ]
    topology.apply(found.changes)
    vhost = topology.vhosts["/"]
    assert sorted(vhost.queues) == ["mine", "transient"]
    assert [record.source for record in vhost.bindings()] == ["amq.topic"]
    assert {name for name in vhost.exchanges if not name.startswith("amq.")} == {"stays"}


def test_an_auto_delete_exchange_that_the_file_names_outlives_its_last_binding() -> None:
    topology = topology_of(ExchangeRecord("/", "x", "topic", auto_delete=True), queue("q"), binding("x", "q"))
    exchanges = [of(name="x", type="topic", auto_delete=True)]
    found = compared(topology, prune=True, exchanges=exchanges, bindings=[], queues=[of(name="q")])
    assert found.changes == [Delete(binding("x", "q").key)]


def test_a_virtual_host_goes_with_everything_and_is_not_looked_into_again() -> None:
    topology = topology_of(queue("q"), binding("amq.topic", "q"), UserRecord("u"), PermissionRecord("u", "/"))
    found = compared(topology, prune=True, vhosts=[], queues=[], bindings=[], permissions=[], exchanges=[])
    assert [step.detail for step in found.steps] == ["with 1 queue and its messages"]
    topology.apply(found.changes)
    assert (topology.vhosts, topology.permissions) == ({}, {})


def test_the_last_administrator_stays() -> None:
    boss = UserRecord("boss", tags=("administrator",))
    topology = topology_of(boss, UserRecord("u"))
    assert pruned(topology, users=[]) == ["- user 'u'", "(kept) user 'boss' stays: the file names no administrator"]
    named = [{"name": "new boss", "tags": "administrator"}]
    assert pruned(topology, users=named) == ["- user 'boss'", "- user 'u'"]


# -- words


def test_a_long_plan_is_cut_and_counted() -> None:
    queues = [of(name=f"q{number:04}") for number in range(1000)]
    found = compared(topology_of(), queues=queues)
    lines = describe(found)
    assert len(lines) == SHOWN_MAX + 2
    assert lines[SHOWN_MAX] == "+ ... and 990 more queues"
    assert lines[-1] == "would create 1,000 queues; 0 things are as the file says"
    assert len(describe(found, everything=True)) == 1001
    assert summary(found, done=True) == "created 1,000 queues; 0 things are as the file says"


def test_no_hash_and_no_control_character_stands_on_the_screen() -> None:
    hashed = {"name": "u", "tags": "", "password_hash": "1F1YL4Q4EVjd3klskFoktOzWqo4qA0IyJYeHmXgYoP1NP+l9"}
    topology = topology_of(UserRecord("u", "$argon2id$secret"))
    lines = describe(compared(topology, users=[hashed, {"name": "\x1b[2J", "tags": "a"}]))
    assert lines == [
        "+ user '\\u001b[2J': tags a",
        "~ user 'u': password set -> another",
        "would create 1 user; would change 1 user; 0 things are as the file says",
    ]
