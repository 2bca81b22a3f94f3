"""Workers: what goes wrong over there is told here, and nobody is left behind."""

from __future__ import annotations

import pytest

from bench.crew import Crew
from bench.errors import BenchError


def test_a_failing_worker_ends_the_wait_with_its_reason():
    with pytest.raises(BenchError, match="publish: ConnectionRefusedError"), Crew() as crew:
        crew.start("publish", url="amqp://127.0.0.1:1/", keys=["q"], body_bytes=100, ring_messages=4)


def test_a_bug_in_a_role_comes_with_its_traceback():
    with pytest.raises(BenchError, match="unexpected keyword argument 'nonsense'"), Crew() as crew:
        crew.start("publish", nonsense=1)


def test_a_worker_that_dies_is_noticed_and_ended():
    with Crew() as crew:
        with pytest.raises(BenchError):
            crew.start("consume", url="amqp://127.0.0.1:1/", queues=[["q"]])
        (member,) = crew.members
    assert member.process.returncode is not None
