"""RabbitMQ's words said again, and the same sentences as the broker makes them."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.management.plain_words import plain
from amqpd.queues.arguments import check_declaration
from amqpd.topology.policy_keys import PolicyInvalid, check_definition
from amqpd.vocabulary.records import QueueRecord

AT = "queue 'q' in virtual host '/': "


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"x-max-length": "5"}, "the argument x-max-length must be a whole number, and is a text"),
        ({"x-max-length": True}, "the argument x-max-length must be a whole number, and is true or false"),
        ({"x-message-ttl": -5}, "the argument x-message-ttl may not be negative: it is -5"),
        ({"x-expires": 0}, "the argument x-expires may not be 0: it is 0"),
        ({"x-max-priority": 300}, "the argument x-max-priority is too large: it is 300"),
        ({"x-single-active-consumer": 1}, "the argument x-single-active-consumer may not be a whole number"),
        ({"x-overflow": "no"}, "the argument x-overflow must be drop-head, reject-publish or reject-publish-dlx"),
        ({"x-queue-mode": "no"}, "the argument x-queue-mode is not known: unsupported queue mode 'no'"),
        (
            {"x-dead-letter-routing-key": "x"},
            "the argument x-dead-letter-routing-key has no effect without x-dead-letter-exchange: give that, too",
        ),
        (
            {"x-queue-type": "quorum", "x-max-priority": 3},
            "a queue of its type has no argument x-max-priority",
        ),
    ],
)
def test_arguments_of_queues(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(AMQPPreconditionFailed) as refused:
        check_declaration(QueueRecord("/", "q", 1, arguments=arguments))
    assert plain(str(refused.value)) == AT + said


@pytest.mark.parametrize(
    ("definition", "operator", "said"),
    [
        ({"message-tll": 5}, False, "there is no policy key 'message-tll' (did you mean 'message-ttl'?)"),
        (
            {"a}]": "b", "c": {"d": [1, {"e": 2}]}},
            False,
            "there is no policy key 'a}]'; there is no policy key 'c'",
        ),
        (
            {"dead-letter-exchange": "d"},
            True,
            "an operator policy cannot have the key 'dead-letter-exchange', which only a policy has",
        ),
        ({"message-ttl": "x"}, False, '"x" is not a valid message TTL'),
    ],
)
def test_policies(definition: dict[str, Any], operator: bool, said: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        check_definition(definition, operator)
    assert plain(f"the policy is not valid: {refused.value}") == f"the policy is not valid: {said}"


def test_something_that_is_there_and_differs() -> None:
    said = plain("inequivalent arg 'durable' for queue 'it's' in vhost 'v': received 'false' but current is 'true'")
    assert said == (
        "queue 'it's' in virtual host 'v' is there already and differs: its durable is true, and false was asked "
        "for; delete it first, or ask for it as it is"
    )
    said = plain(
        "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received the value '5' of type 'long' but "
        "current is none"
    )
    assert "its x-max-length is none, and 5 was asked for" in said


@pytest.mark.parametrize("sentence", ["", "no queue 'x' in vhost '/'", "the name '[{<<\"a\">>' is not valid"])
def test_what_is_not_known_stays_as_it_is(sentence: str) -> None:
    assert plain(sentence) == sentence
