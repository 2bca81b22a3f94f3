"""Permissions by name and pattern, with RabbitMQ's texts."""

from __future__ import annotations

import tracemalloc

import pytest
from pamqp.exceptions import AMQPAccessRefused

from amqpd.security import access as access_module
from amqpd.security.access import Access, compile_pattern
from amqpd.topology.expressions import PatternError
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    Delete,
    PermissionRecord,
    Put,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)


def topology_of(*permissions: PermissionRecord | TopicPermissionRecord) -> Topology:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), Put(UserRecord("u")), *map(Put, permissions)])
    return topology


def refusal(access: Access, *question: object) -> str | None:
    require = access.require if len(question) == 5 else access.require_topic
    try:
        require(*question)  # type: ignore[arg-type]
    except AMQPAccessRefused as error:
        return str(error)
    return None


def test_entering_needs_a_permission_record_of_any_kind() -> None:
    topology = topology_of(PermissionRecord("u", "/"), PermissionRecord("ghost", "/"), PermissionRecord("u", "gone"))
    access = Access(topology)
    assert access.may_enter("u", "/")
    assert not access.may_enter("other", "/")
    assert not access.may_enter("ghost", "/")
    assert not access.may_enter("u", "gone")
    topology.apply([Delete(("permission", "/", "u"))])
    assert not access.may_enter("u", "/")


def test_refusals_have_rabbitmq_s_text() -> None:
    access = Access(topology_of(PermissionRecord("u", "/", "", "", "")))
    assert (
        refusal(access, "u", "/", "configure", "queue", "q")
        == "configure access to queue 'q' in vhost '/' refused for user 'u'"
    )
    assert (
        refusal(access, "u", "/", "write", "exchange", "")
        == "write access to exchange 'amq.default' in vhost '/' refused for user 'u'"
    )
    assert (
        refusal(access, "nobody", "v", "read", "queue", "q")
        == "read access to queue 'q' in vhost 'v' refused for user 'nobody'"
    )


@pytest.mark.parametrize(
    ("pattern", "name", "allowed"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("", "q", False),
        ("", "", True),
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^(amq\\.default|q)$", "q", True),
        ("^q$", "queue", False),
        ("(", "(", False),
        ("[[:alpha:]]", "a", True),
        ("^(?!amq\\.)", "amq.gen", False),
        ("^(?!amq\\.)", "orders", True),
        ("(?<!\\.dead)$", "orders.dead", False),
        ("(?<!\\.dead)$", "orders", True),
        ("^\udcff$", "\udcff", True),
        ("x" * 2_001, "x" * 2_001, False),
    ],
)
def test_patterns_are_searched_and_an_empty_one_is_the_empty_name(pattern: str, name: str, allowed: bool) -> None:
    access = Access(topology_of(PermissionRecord("u", "/", write=pattern)))
    assert (refusal(access, "u", "/", "write", "queue", name) is None) == allowed


def test_the_three_permissions_are_apart_and_the_default_exchange_has_a_name() -> None:
    access = Access(topology_of(PermissionRecord("u", "/", "^c", "^amq\\.default$", "^r")))
    assert refusal(access, "u", "/", "configure", "queue", "c") is None
    assert refusal(access, "u", "/", "read", "queue", "c")
    assert refusal(access, "u", "/", "read", "exchange", "r") is None
    assert refusal(access, "u", "/", "write", "exchange", "") is None
    assert refusal(access, "u", "/", "write", "queue", "")


def test_an_answer_lives_as_long_as_the_topology_s_version() -> None:
    topology = topology_of(PermissionRecord("u", "/", read="^a$"))
    access = Access(topology)
    for _ in range(2):
        assert refusal(access, "u", "/", "read", "queue", "a") is None
        assert refusal(access, "u", "/", "read", "queue", "b")
    topology.apply([Put(PermissionRecord("u", "/", read="^b$"))])
    assert refusal(access, "u", "/", "read", "queue", "a")
    assert refusal(access, "u", "/", "read", "queue", "b") is None
    topology.apply([Delete(("permission", "/", "u"))])
    assert refusal(access, "u", "/", "read", "queue", "b")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "ANSWERS_BYTES_MAX", 3_000)
    monkeypatch.setattr(access_module, "PATTERNS_MAX", 3)
    topology = topology_of(*(PermissionRecord(f"u{n}", "/", read=f"^{n}$") for n in range(20)))
    access = Access(topology)
    for n in range(20):
        assert refusal(access, f"u{n}", "/", "read", "queue", str(n)) is None
        assert refusal(access, f"u{n}", "/", "read", "queue", f"{n}x")
        assert len(access._answers) <= 10


def test_answers_about_long_names_take_as_much_as_is_allowed() -> None:
    """A user may ask about any name, of 255 bytes, whatever the answer."""
    access = Access(topology_of(PermissionRecord("u", "/", read="^$")))
    tracemalloc.start()
    for n in range(30_000):
        assert refusal(access, "u", "/", "read", "queue", f"{n:06d}" + "x" * 240)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1.1 * access_module.ANSWERS_BYTES_MAX, f"{taken} bytes"


def test_patterns_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "PATTERNS_MAX", 3)
    topology = topology_of(*(PermissionRecord(f"u{n}", "/", read=f"^{n}$") for n in range(20)))
    access = Access(topology)
    for n in range(20):
        assert refusal(access, f"u{n}", "/", "read", "queue", str(n)) is None
        assert len(access._patterns) <= 3


TOPIC = TopicPermissionRecord("u", "/", "amq.topic", write="^{username}\\.{client_id}\\.", read="")


def test_topics_are_free_without_a_record_for_the_exchange() -> None:
    access = Access(topology_of(TOPIC))
    assert refusal(access, "u", "/", "write", "other", "any", {}) is None
    assert refusal(access, "other", "/", "write", "amq.topic", "any", {}) is None


def test_topic_patterns_are_expanded() -> None:
    access = Access(topology_of(TOPIC))
    assert refusal(access, "u", "/", "write", "amq.topic", "u.c1.x", {"client_id": "c1"}) is None
    assert (
        refusal(access, "u", "/", "write", "amq.topic", "u.c2.x", {"client_id": "c1"})
        == "write access to topic 'u.c2.x' in exchange 'amq.topic' in vhost '/' refused for user 'u'"
    )
    assert refusal(access, "u", "/", "write", "amq.topic", "u.c1.x", {"client_id": "c2"})
    assert refusal(access, "u", "/", "write", "amq.topic", "u.c1.x", {})
    assert refusal(access, "u", "/", "read", "amq.topic", "u", {})
    assert refusal(access, "u", "/", "read", "amq.topic", "", {}) is None


def test_a_name_cannot_widen_its_own_topic_permission() -> None:
    access = Access(topology_of(TOPIC))
    assert refusal(access, "u", "/", "write", "amq.topic", "u.victim.x", {"client_id": ".*"})
    assert refusal(access, "u", "/", "write", "amq.topic", "u..*.x", {"client_id": ".*"}) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(", r"missing \)"), ("[[:x:]]", "unknown"), ("a" * 9_999, "longer"), ("\ud800", "UTF-8")],
)
def test_a_pattern_that_is_refused_has_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        compile_pattern(pattern)
