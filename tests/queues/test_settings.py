"""What a queue's arguments ask of it: the settings that most of very many queues share.

Not verified here: how arguments and policies combine (`test_live_policies.py`, `test_queue_arguments.py`).
"""

from __future__ import annotations

from typing import Any

import pytest

from amqpd.queues.settings import settings_of
from amqpd.remote.queue import RemoteQueue
from amqpd.vocabulary.records import QueueRecord
from tests.harness.harness import Harness

NOTHING = {"x-unknown": 1}
"""says nothing, and is looked at like everything"""


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}])
def test_settings_without_a_request_are_shared_and_are_the_same(arguments: dict[str, Any]) -> None:
    settings = settings_of(arguments, {})
    assert settings is settings_of(dict(arguments), {})
    assert settings == settings_of({**arguments, **NOTHING}, {})


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [({"x-max-length": 5}, {}), ({"x-queue-type": "quorum", "x-max-length": 5}, {}), ({}, {"max-length": 5})],
)
def test_one_request_is_enough_for_settings_of_its_own(arguments: dict[str, Any], policy: dict[str, Any]) -> None:
    assert settings_of(arguments, policy).max_length == 5


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_of_a_remote_queue_others_know_its_type_and_its_consumers(kind: str, alone: bool) -> None:
    arguments = {"x-queue-type": kind, **({"x-single-active-consumer": True} if alone else {})}
    node = Harness().node
    queue = RemoteQueue(QueueRecord("/", "q", 1, arguments=arguments, source=5), node.journal.lane, node.edges)
    assert (queue.type, queue.quorum, queue.single_active_consumer) == (kind, kind == "quorum", alone)
