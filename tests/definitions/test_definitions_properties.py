"""Any topology goes through a definition file and comes back, into an empty broker and into any other one."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqpd.definitions.difference import difference
from amqpd.definitions.document import read_definitions
from amqpd.definitions.export import export_steps
from amqpd.security.rabbitmq_hashes import ALGORITHMS, stored_hash
from amqpd.topology.plans import create_vhost
from amqpd.topology.state import Topology
from amqpd.vocabulary.escapes import UNSAFE
from amqpd.vocabulary.records import (
    BindingRecord,
    Change,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.json_values import BadValue, from_json, json_text, to_json
from amqpd.wire.values import arguments_key


def export_text(topology: Topology, version: str, vhost: str | None = None) -> str:
    return "".join(part for part in export_steps(topology, version, vhost) if part is not None)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VHOSTS = st.sampled_from(["/", "v", "ü/%"])
USERS = st.sampled_from(["guest", "bob", "Zoë"])
NAMES = st.sampled_from(["a", "b", "c", 'quote"d', "naïve", "\N{SNOWMAN}", " "])
# Void, all numbers, texts, bytes that are and are not UTF-8, timestamps, decimals.
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.binary(max_size=4)
    | st.binary(max_size=4).map(bytearray)
    | st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
    | st.integers(-(2**31), 2**31 - 1).map(lambda unscaled: Decimal(unscaled).scaleb(-2))
)
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=4
)
# Names are octets: \udcff stands for 0xff, which is not UTF-8.
ARGUMENTS = st.dictionaries(st.sampled_from(["x", "y", "durable", "\x9b2J", "\udcff\N{SNOWMAN}"]), VALUES, max_size=2)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=2).filter(lambda found: not looks_like_pairs(found))
        | st.dictionaries(TEXTS, inner, max_size=2)
    ),
    max_leaves=4,
)


def looks_like_pairs(found: list[Any]) -> bool:
    """A list of pairs is an object in RabbitMQ's files, and is read as one."""
    return bool(found) and all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in found
    )


@st.composite
def hashes(draw: st.DrawFn) -> str:
    algorithm = draw(st.sampled_from(["", "argon2", *ALGORITHMS]))
    if algorithm in ("", "argon2"):
        return algorithm and "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA"
    binary = b"salt" + hashlib.new(ALGORITHMS[algorithm], draw(st.binary(max_size=3))).digest()
    return stored_hash(algorithm, base64.b64encode(binary).decode())


TAGS = st.lists(st.sampled_from(["administrator", "monitoring", "mine"]), unique=True).map(tuple)
LIMITS = st.dictionaries(st.sampled_from(["max-connections", "max-channels"]), st.integers(-1, 100))
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.lists(st.sampled_from("ab"), min_size=1, unique=True),
        "default_queue_type": st.just("quorum"),
    },
)
PATTERNS = st.sampled_from(["", ".*", "^a", "b|c"])
DEFINITIONS = st.fixed_dictionaries({"max-length": st.integers(0, 9)}, optional={"message-ttl": st.integers(0, 9)})


@st.composite
def topologies(draw: st.DrawFn, durable: st.SearchStrategy[bool]) -> Topology:
    changes: list[Change] = []
    for vhost in draw(st.lists(VHOSTS, unique=True)):
        changes += create_vhost(vhost)
        changes.append(Put(VhostRecord(vhost, draw(TEXTS), metadata=draw(METADATA))))
        changes += draw(contents(vhost, durable))
    changes += [
        Put(UserRecord(user, draw(hashes()), draw(TAGS), limits=draw(LIMITS)))
        for user in draw(st.lists(USERS, unique=True))
    ]
    changes += [Put(ParameterRecord("", "", name, draw(JSON))) for name in draw(st.lists(NAMES, max_size=2))]
    users = [
        change.record.name for change in changes if isinstance(change, Put) and isinstance(change.record, UserRecord)
    ]
    vhosts = {
        change.record.name for change in changes if isinstance(change, Put) and isinstance(change.record, VhostRecord)
    }
    for user, vhost in itertools.product(users, sorted(vhosts)):
        if draw(st.booleans()):
            changes.append(Put(PermissionRecord(user, vhost, draw(PATTERNS), draw(PATTERNS), draw(PATTERNS))))
        if draw(st.booleans()):
            changes.append(Put(TopicPermissionRecord(user, vhost, draw(NAMES), draw(PATTERNS), draw(PATTERNS))))
    topology = Topology()
    topology.apply(changes)
    return topology


@st.composite
def contents(draw: st.DrawFn, vhost: str, durable: st.SearchStrategy[bool]) -> list[Change]:
    exchanges = [
        ExchangeRecord(
            vhost,
            name,
            draw(st.sampled_from(["direct", "topic", "headers"])),
            draw(durable),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(ARGUMENTS),
        )
        for name in draw(st.lists(NAMES, unique=True, max_size=3))
    ]
    queues = [
        QueueRecord(vhost, name, number, draw(durable), draw(st.booleans()), arguments=draw(ARGUMENTS))
        for number, name in enumerate(draw(st.lists(NAMES, unique=True, max_size=3)))
    ]
    # What has to be left out of a file, and what is bound to it.
    queues += [
        QueueRecord(vhost, "amq.gen-x", 77, durable=False),
        QueueRecord(vhost, "exclusive", 78, durable=False, exclusive=True, owner="c1"),
    ]
    sources = [exchange.name for exchange in exchanges] + ["amq.topic", "amq.headers"]
    ends: list[Any] = [("queue", queue) for queue in queues] + [("exchange", exchange) for exchange in exchanges]
    durables = {exchange.name: exchange.durable for exchange in exchanges}
    bindings = []
    for source in draw(st.lists(st.sampled_from(sources), max_size=4)):
        kind, end = draw(st.sampled_from(ends))
        arguments = draw(ARGUMENTS)
        both = durables.get(source, True) and end.durable
        bindings.append(
            BindingRecord(vhost, source, end.name, kind, draw(TEXTS), both, arguments, arguments_key(arguments))
        )
    policies = [
        PolicyRecord(
            vhost,
            name,
            draw(PATTERNS),
            draw(st.sampled_from(["all", "queues"])),
            draw(DEFINITIONS),
            draw(st.integers(-3, 3)),
            draw(st.booleans()),
        )
        for name in draw(st.lists(NAMES, max_size=2))
    ]
    parameters = [ParameterRecord(vhost, "unroutable", "default", name) for name in draw(st.lists(NAMES, max_size=1))]
    if draw(st.booleans()):
        parameters.append(
            ParameterRecord(vhost, "vhost-limits", "limits", {"max-connections": draw(st.integers(-1, 9))})
        )
    return [Put(record) for record in (*exchanges, *queues, *bindings, *policies, *parameters)]


ids = itertools.count(1000)


@given(topologies(st.booleans()))
@settings(max_examples=25)
def test_an_export_imports_into_an_empty_broker_and_exports_again_byte_for_byte(topology: Topology) -> None:
    text = export_text(topology, "1")
    assert not UNSAFE.search(text.replace("\n", ""))
    assert export_text(topology, "1") == text
    empty = Topology()
    found = difference(empty, read_definitions(text), lambda: next(ids))
    assert not found.conflicts
    assert not found.left_out
    empty.apply(found.changes)
    assert export_text(empty, "1") == text


@given(topologies(st.booleans()))
@settings(max_examples=25)
def test_importing_an_export_where_it_came_from_changes_nothing(topology: Topology) -> None:
    found = difference(topology, read_definitions(export_text(topology, "1")), lambda: next(ids), prune=True)
    assert (found.steps, found.conflicts, found.left_out) == ([], [], [])


@given(topologies(st.just(True)), topologies(st.just(True)))
@settings(max_examples=25)
def test_with_prune_any_broker_becomes_what_the_file_says(wanted: Topology, other: Topology) -> None:
    text = export_text(wanted, "1")
    found = difference(other, read_definitions(text), lambda: next(ids), prune=True)
    other.apply(found.changes)
    again = difference(other, read_definitions(text), lambda: next(ids), prune=True)
    # What was in the way is still there, and nothing else is left to do.
    assert again.conflicts == found.conflicts
    assert again.steps == []
    if not found.conflicts and not found.kept and not found.left_out:
        assert export_text(other, "1") == text


@given(topologies(st.booleans()))
@settings(max_examples=15)
def test_one_virtual_host_goes_into_another(topology: Topology) -> None:
    for vhost in topology.vhosts:
        text = export_text(topology, "1", vhost)
        other = Topology()
        other.apply(create_vhost("other"))
        found = difference(other, read_definitions(text, "other"), lambda: next(ids), prune=True)
        assert not found.conflicts
        other.apply(found.changes)
        # What is said of the virtual host itself stays its own.
        mine, theirs = (json.loads(each) for each in (text, export_text(other, "1", "other")))
        for about in ("original_vhost_name", "description", "metadata", "limits"):
            del mine[about], theirs[about]
        assert theirs == mine


@given(VALUES)
def test_a_value_that_went_through_json_stays_what_it_is(value: Any) -> None:
    written = to_json(value)
    assert json_text(to_json(from_json(written))) == json_text(written)


@pytest.mark.parametrize("name", ["\ud800", "x" * 256, "\udc80" * 256])
def test_a_name_that_no_octets_make_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match="a name in it"):
        from_json({name: 1})
