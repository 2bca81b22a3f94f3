"""Policies and operator policies: which one applies, to what, and that it applies at once.

What comes in and goes out: policies set by the broker's command line; queues that do what they say.
Rules: 1. Patterns begin with the test's own prefix, so tests do not meet. 2. What a policy does is shown by the
queue, never by a listing.
Not here: what the arguments do in themselves (the other `test_ext_*.py`), limits (`test_ext_limits.py`).
"""

from __future__ import annotations

import time

import pika.exceptions
import pytest

from conformance.extensions import bodies, depth, gone, reachable, take, wait_until
from conformance.rules import differs, rule

MATCHING = "RabbitMQ: policies#how-policies-work"
OPERATOR = "RabbitMQ: policies#operator-policies"


@pytest.fixture
def channel(channel):
    channel.confirm_delivery()
    return channel


@pytest.fixture
def policy(admin, broker, unique):
    """Sets a policy for names that begin with this test's prefix and the word."""

    def set_policy(name: str, word: str, definition: dict, **options: object) -> None:
        pattern = f"^{unique(word)}".replace(".", "\\.")
        admin.set_policy(broker.vhost, unique(name), pattern, definition, **options)

    return set_policy


def limited(channel, queue: str, **options: object) -> int:
    """How many messages stay of five: declares the queue if need be."""
    channel.queue_declare(queue, durable=True, **options)
    channel.queue_purge(queue)
    for number in range(5):
        channel.basic_publish("", queue, str(number).encode())
    wait_until(lambda: depth(channel, queue) <= 5)
    return depth(channel, queue)


@rule(MATCHING, "A policy applies to the queues whose names its pattern finds, and to no others.")
def test_a_policy_matches_names(channel, policy, unique):
    policy("p", "yes", {"max-length": 2})
    assert limited(channel, unique("yes.1")) == 2
    assert limited(channel, unique("no.1")) == 5


@rule(MATCHING, "A pattern is searched for anywhere in the name unless it says ^ or $.")
def test_a_pattern_is_searched_for(admin, broker, channel, unique):
    admin.set_policy(broker.vhost, unique("p"), f"{str(unique)[-6:]}.mid", {"max-length": 2})
    assert limited(channel, unique("middle")) == 2


@rule(MATCHING, "A queue that exists when the policy is set is changed at once, and back when it is cleared.")
def test_a_policy_changes_queues_that_exist(admin, broker, channel, policy, unique):
    assert limited(channel, unique("q")) == 5
    policy("p", "q", {"max-length": 3})
    wait_until(lambda: depth(channel, unique("q")) == 3)
    assert bodies(channel, unique("q"), 3) == [b"2", b"3", b"4"]
    policy("p", "q", {"max-length": 1})
    wait_until(lambda: limited(channel, unique("q")) == 1)
    admin.clear_policy(broker.vhost, unique("p"))
    wait_until(lambda: limited(channel, unique("q")) == 5)


@rule(MATCHING, "Of several policies that match, the one with the highest priority applies, alone.")
def test_the_highest_priority_applies_alone(admin, broker, channel, policy, unique):
    policy("low", "q", {"max-length": 1}, priority=1)
    policy("high", "q", {"max-length-bytes": 3}, priority=10)
    assert limited(channel, unique("q")) == 3
    admin.clear_policy(broker.vhost, unique("high"))
    wait_until(lambda: limited(channel, unique("q")) == 1)


@rule(MATCHING, "apply-to says whether a policy is for queues, exchanges, or both.")
@pytest.mark.parametrize(
    ("apply_to", "left"), [("all", 2), ("queues", 2), ("exchanges", 5)], ids=["all", "queues", "exchanges"]
)
def test_apply_to(channel, policy, unique, apply_to, left):
    policy("p", "q", {"max-length": 2}, apply_to=apply_to)
    assert limited(channel, unique("q")) == left


@rule(MATCHING, "apply-to can name a type of queues.")
@differs(on="rabbitmq<3.12", why="classic_queues and quorum_queues came with RabbitMQ 3.12")
def test_apply_to_a_type_of_queues(channel, policy, unique):
    policy("p", "q", {"max-length": 2}, apply_to="quorum_queues")
    assert limited(channel, unique("q.classic")) == 5
    channel.queue_declare(unique("q.quorum"), durable=True, arguments={"x-queue-type": "quorum"})
    for _ in range(5):
        channel.basic_publish("", unique("q.quorum"), b"x")
    wait_until(lambda: depth(channel, unique("q.quorum")) == 2)


@rule("RabbitMQ: parameters#policies", "Policies belong to a virtual host.")
def test_policies_belong_to_a_virtual_host(admin, broker, channel, unique):
    admin.add_vhost(unique("other"))
    admin.set_permissions(unique("other"), broker.user, ".*", ".*", ".*")
    admin.set_policy(unique("other"), unique("p"), ".*", {"max-length": 2})
    assert limited(channel, unique("q")) == 5


@rule(
    "RabbitMQ: ttl#message-ttl-applied-retroactively",
    "A time to live that comes by policy is for messages that come later.",
)
def test_a_ttl_by_policy(channel, policy, unique):
    channel.queue_declare(unique("q"), durable=True)
    policy("p", "q", {"message-ttl": 50})
    before = time.monotonic()
    channel.basic_publish("", unique("q"), b"x")
    wait_until(lambda: depth(channel, unique("q")) == 0)
    assert time.monotonic() - before >= 0.050


@rule("RabbitMQ: dlx#using-policies", "A dead letter exchange by policy works for messages that are there already.")
def test_a_dead_letter_exchange_by_policy(channel, policy, unique):
    channel.queue_declare(unique("dead"), durable=True)
    channel.queue_declare(unique("q"), durable=True)
    channel.basic_publish("", unique("q"), b"x")
    policy("p", "q", {"dead-letter-exchange": "", "dead-letter-routing-key": unique("dead")})
    channel.basic_reject(take(channel, unique("q"), auto_ack=False).method.delivery_tag, requeue=False)
    assert take(channel, unique("dead")).deaths[0]["queue"] == unique("q")


@rule(
    "RabbitMQ: queues#optional-arguments-precedence",
    "An argument of the queue goes before the policy's dead letter exchange.",
)
def test_an_argument_goes_before_the_policy(channel, policy, unique):
    for word in ("mine", "theirs"):
        channel.queue_declare(unique(word), durable=True)
    policy("p", "q", {"dead-letter-exchange": "", "dead-letter-routing-key": unique("theirs")})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique("mine")}
    channel.queue_declare(unique("q"), durable=True, arguments=arguments)
    channel.basic_publish("", unique("q"), b"x")
    channel.basic_reject(take(channel, unique("q"), auto_ack=False).method.delivery_tag, requeue=False)
    assert take(channel, unique("mine")).body == b"x"
    assert depth(channel, unique("theirs")) == 0


@rule(
    "RabbitMQ: queues#optional-arguments-precedence",
    "Of a number that argument and policy both give, the lower one counts.",
)
@pytest.mark.parametrize(("argument", "policy_value"), [(2, 4), (4, 2)], ids=["argument", "policy"])
def test_the_lower_number_counts(channel, policy, unique, argument, policy_value):
    policy("p", "q", {"max-length": policy_value})
    assert limited(channel, unique("q"), arguments={"x-max-length": argument}) == 2


@rule(
    "RabbitMQ: queues#property-equivalence",
    "A policy is no argument: a declaration without arguments is still equivalent.",
)
def test_a_policy_is_no_argument(channel, policy, unique):
    channel.queue_declare(unique("q"), durable=True)
    policy("p", "q", {"max-length": 2, "message-ttl": 60000})
    channel.queue_declare(unique("q"), durable=True)


@rule("RabbitMQ: maxlength#overflow-behaviour", "An overflow behaviour by policy takes effect on a live queue.")
def test_an_overflow_by_policy(channel, policy, unique):
    assert limited(channel, unique("q"), arguments={"x-max-length": 2}) == 2
    policy("p", "q", {"overflow": "reject-publish"})

    def refuses() -> bool:
        try:
            channel.basic_publish("", unique("q"), b"new")
        except pika.exceptions.NackError:
            return True
        return False

    wait_until(refuses)
    assert depth(channel, unique("q")) == 2


@rule("RabbitMQ: ttl#queue-ttl-using-policy", "A queue that exists expires when a policy says so.")
def test_expires_by_policy(connection, channel, policy, unique):
    channel.queue_declare(unique("q"), durable=True)
    policy("p", "q", {"expires": 300})
    wait_until(lambda: not reachable(connection, unique("q")))
    assert gone(connection, unique("q"))


@rule(
    "RabbitMQ: ae",
    "An alternate exchange by policy takes what the exchange cannot route, while the policy stands.",
)
def test_an_alternate_exchange_by_policy(admin, broker, channel, policy, unique):
    channel.exchange_declare(unique("ex"), "direct")
    channel.exchange_declare(unique("other"), "fanout")
    channel.queue_declare(unique("q"), exclusive=True)
    channel.queue_bind(unique("q"), unique("other"))

    def arrives() -> bool:
        try:
            channel.basic_publish(unique("ex"), "nobody", b"x", mandatory=True)
        except pika.exceptions.UnroutableError:
            return False
        return True

    assert not arrives()
    policy("p", "ex", {"alternate-exchange": unique("other")}, apply_to="exchanges")
    wait_until(arrives)
    assert take(channel, unique("q")).method.exchange == unique("ex")
    admin.clear_policy(broker.vhost, unique("p"))
    wait_until(lambda: not arrives())


@rule("RabbitMQ: quorum-queues#policy-support", "A delivery limit by policy counts for quorum queues.")
def test_a_delivery_limit_by_policy(channel, policy, unique):
    policy("p", "q", {"delivery-limit": 1})
    channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": "quorum"})
    channel.basic_publish("", unique("q"), b"poison")
    for _ in range(2):
        tag = take(channel, unique("q"), auto_ack=False).method.delivery_tag
        channel.basic_reject(tag, requeue=True)
    channel.basic_publish("", unique("q"), b"next")
    assert take(channel, unique("q")).body == b"next"


@rule(OPERATOR, "An operator policy applies beside the ordinary one; of a number both have, the lower counts.")
@pytest.mark.parametrize(("users", "operators"), [(2, 4), (4, 2)], ids=["user", "operator"])
def test_an_operator_policy_bounds_a_policy(channel, policy, unique, users, operators):
    policy("users", "q", {"max-length": users})
    policy("operators", "q", {"max-length": operators}, operator=True)
    assert limited(channel, unique("q")) == 2


@rule(OPERATOR, "An operator policy bounds what a queue was declared with.")
def test_an_operator_policy_bounds_an_argument(channel, policy, unique):
    policy("operators", "q", {"max-length": 2}, operator=True)
    assert limited(channel, unique("q"), arguments={"x-max-length": 4}) == 2
    assert limited(channel, unique("q.more"), arguments={"x-max-length": 1}) == 1


@rule(OPERATOR, "What only one of the two says counts as well.")
def test_policies_are_merged(channel, policy, unique):
    policy("users", "q", {"max-length": 3})
    policy("operators", "q", {"max-length-bytes": 2}, operator=True)
    assert limited(channel, unique("q")) == 2


@rule(OPERATOR, "An operator policy that is set on a live queue takes effect at once.")
def test_an_operator_policy_changes_queues_that_exist(admin, broker, channel, policy, unique):
    assert limited(channel, unique("q")) == 5
    policy("operators", "q", {"max-length": 1}, operator=True)
    wait_until(lambda: depth(channel, unique("q")) == 1)
    admin.clear_policy(broker.vhost, unique("operators"), operator=True)
    wait_until(lambda: limited(channel, unique("q")) == 5)


@rule(OPERATOR, "An operator's time to live bounds that of a policy.")
def test_an_operator_policy_bounds_a_ttl(channel, policy, unique):
    channel.queue_declare(unique("q"), durable=True)
    policy("users", "q", {"message-ttl": 600_000})
    policy("operators", "q", {"message-ttl": 50}, operator=True)
    channel.basic_publish("", unique("q"), b"x")
    wait_until(lambda: depth(channel, unique("q")) == 0)


@rule(OPERATOR, "An operator policy may hold limits only: a dead letter exchange is refused.")
def test_an_operator_policy_holds_limits_only(admin, broker, unique):
    with pytest.raises(AssertionError):
        admin.set_policy(broker.vhost, unique("p"), ".*", {"dead-letter-exchange": "x"}, operator=True)


@rule(MATCHING, "What is no policy is refused: unknown keys, wrong values, wrong patterns, nothing.")
@pytest.mark.parametrize(
    ("pattern", "definition"),
    [
        (".*", {"nobody-knows-this": 1}),
        (".*", {"max-length": -1}),
        (".*", {"message-ttl": "soon"}),
        (".*", {"overflow": "bogus"}),
        ("(", {"max-length": 1}),
        (".*", {}),
    ],
    ids=["key", "negative", "type", "value", "pattern", "empty"],
)
def test_an_invalid_policy_is_refused(admin, broker, unique, pattern, definition):
    with pytest.raises(AssertionError):
        admin.set_policy(broker.vhost, unique("p"), pattern, definition)
