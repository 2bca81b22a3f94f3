"""Reading definition files: those of RabbitMQ, and those with mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amqpd.definitions.document import (
    PROBLEMS_MAX,
    UNKNOWN_MAX,
    BadDefinitions,
    Definitions,
    read_definitions,
)
from amqpd.security.authentication.passwords import verify_password
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    ParameterRecord,
    PolicyRecord,
    QueueRecord,
    Record,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.json_values import from_json, to_json

# In the format that RabbitMQ 3.10.8 writes, with all its spellings.
RABBITMQ_FILE = Path(__file__).with_name("rabbitmq-3.10.json")


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return read_definitions(RABBITMQ_FILE.read_bytes())


def only(definitions: Definitions, section: str) -> list[Record]:
    return list(definitions.records[section].values())


def test_everything_in_a_file_of_rabbitmq_is_read(definitions: Definitions) -> None:
    assert only(definitions, "vhosts") == [
        VhostRecord("/", "Default virtual host"),
        VhostRecord("shop", "the shop", metadata={"tags": ["a", "b"]}),
    ]
    certificate, alice, bob = only(definitions, "users")
    assert certificate == UserRecord("certificate")
    assert isinstance(alice, UserRecord)
    assert isinstance(bob, UserRecord)
    assert verify_password(alice.password_hash, b"secret")
    assert (alice.tags, alice.limits) == (("administrator", "monitoring"), {"max-channels": 7, "max-connections": 5})
    assert verify_password(bob.password_hash, b"secret")
    assert bob.tags == ("management", "policymaker")
    assert only(definitions, "parameters") == [
        ParameterRecord("shop", "vhost-limits", "limits", {"max-connections": 5, "max-queues": 7})
    ]
    assert only(definitions, "global_parameters") == [
        ParameterRecord("", "", "mqtt_default_vhosts", {"O=x": "/"}),
        ParameterRecord("", "", "cluster_name", "my-cluster"),
    ]
    assert only(definitions, "policies") == [
        PolicyRecord("/", "ttl", "^q", "queues", {"max-length": 10, "message-ttl": 1000}, 3)
    ]
    assert only(definitions, "operator_policies") == [
        PolicyRecord("/", "cap", "^q", "queues", {"max-length": 20}, 1, operator=True)
    ]
    assert only(definitions, "exchanges") == [
        ExchangeRecord("/", "news", "topic", arguments={"alternate-exchange": "spare"})
    ]
    blob = {"x-max-length": 5, "blob": b"\xff\xfe", "list": [1, {"y": 2.5}], "yes": True}
    assert only(definitions, "queues") == [
        QueueRecord("shop", "orders", 0, arguments={"x-queue-type": "quorum"}),
        QueueRecord("/", "naïve", 0, arguments=blob),
    ]
    assert [record.arguments for record in only(definitions, "bindings") if isinstance(record, BindingRecord)] == [
        {"x-match": "any", "k": 1},
        {},
        {},
    ]
    assert not definitions.warnings


def test_what_is_the_brokers_own_or_of_nobody_is_left_out(definitions: Definitions) -> None:
    assert definitions.left_out == [
        "queues[2] ('amq.gen-JzTY20BRgKO-HjmUJj0wLg'): names that begin with amq. are the broker's to give",
    ]


def read(**sections: Any) -> Definitions:
    return read_definitions(json.dumps(sections))


def problems(**sections: Any) -> list[str]:
    with pytest.raises(BadDefinitions) as caught:
        read(**sections)
    return caught.value.problems


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"a": NaN}', "\xff", "[" * 100_000])
def test_what_is_no_definition_file_is_one_problem(text: str) -> None:
    with pytest.raises(BadDefinitions) as caught:
        read_definitions(text)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("section", "item", "problem"),
    [
        ("queues", 1, "queues[0] is not an object"),
        ("queues", {"name": "q"}, "queues[0] ('q'): no virtual host is named: if this is the file of one, say which"),
        ("queues", {"vhost": "/"}, "queues[0]: name is missing"),
        ("queues", {"vhost": "/", "name": ""}, "queues[0] (''): name is empty"),
        ("queues", {"vhost": "/", "name": "é" * 128}, "name is longer than 255 bytes"),
        ("queues", {"vhost": "/", "name": "\ud800"}, "name is not a text"),
        ("queues", {"vhost": "/", "name": "q", "durable": "yes"}, "durable is neither true nor false"),
        ("queues", {"vhost": "/", "name": "q", "arguments": 1}, "arguments is not an object"),
        ("queues", {"vhost": "/", "name": "q", "arguments": {"x": 2**63}}, "does not fit in 64 bits"),
        ("exchanges", {"vhost": "/", "name": "x"}, "type is missing"),
        ("bindings", {"vhost": "/", "source": "x", "destination": "q"}, "neither queue nor exchange"),
        ("users", {"name": "u", "password": "a", "password_hash": "b"}, "both password and password_hash"),
        ("users", {"name": "u", "password_hash": "AAAA"}, "has 3 bytes"),
        ("users", {"name": "u", "password_hash": "AAAA", "hashing_algorithm": "x"}, "'x' is not known"),
        ("users", {"name": "u", "tags": 1}, "tags is neither"),
        ("users", {"name": "u", "tags": [], "limits": {"max": 1}}, "Unrecognised terms"),
        (
            "permissions",
            {"user": "u", "vhost": "/", "configure": "(", "write": "", "read": ""},
            "configure is not a regular",
        ),
        (
            "policies",
            {"vhost": "/", "name": "p", "pattern": "(", "definition": {"expires": 1}},
            "pattern should be reg",
        ),
        ("policies", {"vhost": "/", "name": "p", "pattern": "", "definition": {"bogus": 1}}, "not recognised policy"),
        (
            "parameters",
            {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {"max-queues": "a"}},
            "number",
        ),
        ("parameters", {"vhost": "/", "component": "operator_policy", "name": "p", "value": 1}, "is not an object"),
    ],
)
def test_a_mistake_is_told_with_its_place(section: str, item: Any, problem: str) -> None:
    [found] = problems(**{section: [item]})
    assert problem in found


def test_all_mistakes_are_told_at_once_and_nothing_is_used() -> None:
    good, bad = {"vhost": "/", "name": "q"}, {"vhost": "/", "name": 1}
    assert len(problems(queues=[good, bad, bad], exchanges={}, users=[{"name": ""}])) == 4


def test_the_same_thing_twice_is_a_mistake_unless_it_is_the_same() -> None:
    one, other = {"vhost": "/", "name": "q"}, {"vhost": "/", "name": "q", "auto_delete": True}
    assert len(read(queues=[one, one]).records["queues"]) == 1
    assert "twice" in problems(queues=[one, other])[0]


@pytest.mark.parametrize(
    ("section", "one", "other"),
    [
        ("users", {"password": "a"}, {"password": "b"}),
        ("users", {"password": "a"}, {}),
        ("users", {}, {"password": "a"}),
        ("vhosts", {"limits": {"max-queues": 1}}, {"limits": {"max-queues": 2}}),
    ],
)
def test_so_is_what_is_not_in_its_record(section: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    text = json.dumps({section: [{"name": "n", "tags": "", **one}, {"name": "n", "tags": "", **other}]})
    with pytest.raises(BadDefinitions, match=rf"^{section}\[1\].*: the same thing stands in the file twice"):
        read_definitions(text)
    read_definitions(json.dumps({section: [{"name": "n", "tags": "", **one}] * 2}))


def test_of_very_many_mistakes_the_first_ones_are_told() -> None:
    with pytest.raises(BadDefinitions) as raised:
        read_definitions('{"queues": [' + "0, " * 5_000 + "0]}")
    assert len(raised.value.problems) == PROBLEMS_MAX + 1
    assert raised.value.problems[:2] == [
        "the first 1000 mistakes of the file, which was read no further",
        "queues[0] is not an object",
    ]
    members = {f"m{number}": 0 for number in range(UNKNOWN_MAX)}
    assert len(read_definitions(json.dumps(members)).left_out) == UNKNOWN_MAX
    with pytest.raises(BadDefinitions, match="more than 1000 members that no definition file has"):
        read_definitions(json.dumps({**members, "one more": 0}))


def test_files_of_old_versions_have_md5_hashes_without_saying_so() -> None:
    old = {"name": "u", "password_hash": "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "tags": "administrator"}
    definitions = read(rabbit_version="3.5.7", users=[old])
    assert definitions.warnings == ["the password of user 'u' is an MD5 hash, quick to guess: set a new one"]
    assert "has 20 bytes" in problems(users=[old])[0]


def test_a_file_as_rabbitmq_4_writes_it() -> None:
    definitions = read(
        explanation="Definitions of cluster 'rabbit@host'",
        original_cluster_name="rabbit@host",
        product_name="RabbitMQ",
        product_version="4.2.0",
        rabbitmq_definition_format="cluster",
        rabbitmq_version="4.2.0",
        vhosts=[
            {
                "name": "/",
                "limits": {"max-connections": 3},
                "metadata": {
                    "description": "Default virtual host",
                    "tags": ["replicate"],
                    "default_queue_type": "classic",
                    "protected_from_deletion": True,
                },
            }
        ],
        parameters=[
            {
                "vhost": "/",
                "component": "operator_policy",
                "name": "op",
                "value": {"pattern": ".*", "definition": {"expires": 1}, "apply-to": "classic_queues", "priority": 0},
            },
            {"vhost": "/", "component": "unroutable", "name": "default", "value": "drop"},
        ],
        queues=[{"vhost": "/", "name": "q", "type": "classic", "arguments": {"x-queue-type": "classic"}}],
    )
    kept = {"tags": ["replicate"], "default_queue_type": "classic", "protected_from_deletion": True}
    assert only(definitions, "vhosts") == [VhostRecord("/", "Default virtual host", metadata=kept)]
    assert only(definitions, "operator_policies") == [
        PolicyRecord("/", "op", ".*", "classic_queues", {"expires": 1}, operator=True)
    ]
    assert only(definitions, "parameters") == [ParameterRecord("/", "unroutable", "default", "drop")]
    assert definitions.left_out == []


def test_passwords_in_clear_text_are_kept_apart() -> None:
    definitions = read(users=[{"name": "u", "password": "pw", "tags": ""}])
    assert definitions.passwords == {"u": "pw"}
    assert only(definitions, "users") == [UserRecord("u")]


def test_the_file_of_one_virtual_host_is_taken_to_the_one_that_is_named() -> None:
    text = json.dumps(
        {
            "users": [{"name": "u", "tags": ""}],
            "queues": [{"name": "mine"}, {"name": "of v", "vhost": "v"}, {"name": "of w", "vhost": "w"}],
        }
    )
    definitions = read_definitions(text, "v")
    assert sorted(definitions.records["queues"]) == [("queue", "v", "mine"), ("queue", "v", "of v")]
    assert definitions.records["users"] == {}
    assert definitions.named == {"queues"}


def test_limits_that_stand_with_the_virtual_host_only_are_meant() -> None:
    definitions = read(vhosts=[{"name": "v", "limits": {"max-queues": 1}}])
    assert only(definitions, "parameters") == [ParameterRecord("v", "vhost-limits", "limits", {"max-queues": 1})]
    assert definitions.bare_vhosts == {"v"}


def test_the_type_of_a_queue_may_stand_beside_its_arguments_or_with_the_virtual_host() -> None:
    definitions = read(
        vhosts=[{"name": "v", "metadata": {"default_queue_type": "quorum"}}],
        queues=[
            {"vhost": "/", "name": "a", "type": "quorum"},
            {"vhost": "/", "name": "b", "type": "classic"},
            {"vhost": "v", "name": "c"},
            {"vhost": "v", "name": "d", "arguments": {"x-queue-type": "classic"}},
        ],
    )
    types = {record.key[2]: record.arguments.get("x-queue-type") for record in only(definitions, "queues")}
    assert types == {"a": "quorum", "b": None, "c": "quorum", "d": "classic"}


def test_bytes_that_are_no_text_go_both_ways() -> None:
    assert to_json(b"\xff\xfe") == "Not UTF-8, base64 is: //4="
    assert from_json("Not UTF-8, base64 is: //4=") == b"\xff\xfe"
    for literal in ("Not UTF-8, base64 is: ", "Not UTF-8, base64 is: !", "Not UTF-8, base64 is: eHl6"):
        assert from_json(literal) == literal


@pytest.mark.parametrize("opening", ['{"a":', "["])
@pytest.mark.parametrize("section", ["vhosts", "global_parameters", "policies"])
def test_a_file_that_is_nested_deeply_is_a_mistake_of_the_file(section: str, opening: str) -> None:
    """Not as deep as the reader of JSON goes, and deeper than what walks through what it found."""
    deep = opening * 600 + "1" + ("}" if opening[0] == "{" else "]") * 600
    item = f'"name": "a", "vhost": "/", "pattern": "", "value": {deep}, "limits": {deep}, "definition": {deep}'
    with pytest.raises(BadDefinitions, match="nested deeper"):
        read_definitions(f'{{"{section}": [{{{item}}}]}}')
