"""Rules and differences: what a test is the test of, and where a broker is known to answer otherwise.

What comes in: `@rule(source, sentence)` on every test; `@differs(on=..., why=...)` on a test, or as one of the marks
of a `pytest.param`. What goes out: pytest marks, which `outcomes.py` and the table (`table.py`) read.
Rules: 1. A source is "AMQP 0-9-1 section 1.8.3.3" or "RabbitMQ: ttl" (the page below https://www.rabbitmq.com/docs/).
2. `on` names a broker, and perhaps versions of it: "amqpd", "rabbitmq", "rabbitmq<4", "rabbitmq>=3.12". 3. A test
that `differs` must fail there, or the mark is stale and the test fails; unless `asserted=True`: then the test knows
that broker's answer, and asserts it.
Not here: who runs (`broker.py`).
"""

from __future__ import annotations

import re
from typing import Protocol

import pytest

BROKERS = ("amqpd", "rabbitmq", "other")

_CONDITION = re.compile(rf"({'|'.join(BROKERS)})(?:(<|>=)(\d+(?:\.\d+)*))?")
_SOURCE = re.compile(r"AMQP 0-9-1 section \d+(\.\d+)*( and \d+(\.\d+)*)?|RabbitMQ: [a-z0-9-]+(#[\w.-]+)?")


class Versioned(Protocol):
    """A broker as far as a condition looks at it."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


def rule(source: str, sentence: str) -> pytest.MarkDecorator:
    """The rule that a test checks: where it stands, and what it says, in one sentence of our own."""
    if not _SOURCE.fullmatch(source):
        raise ValueError(f"{source!r}: write 'AMQP 0-9-1 section N.N' or 'RabbitMQ: page', as rules.py says")
    return pytest.mark.rule(source=source, sentence=sentence)


def differs(*, on: str, why: str, asserted: bool = False) -> pytest.MarkDecorator:
    """A broker that is known to answer otherwise, and why. `asserted`: the test asserts its answer."""
    if not _CONDITION.fullmatch(on):
        raise ValueError(f"{on!r}: write a broker of {BROKERS}, then nothing, '<version' or '>=version'")
    return pytest.mark.differs(on=on, why=why, asserted=asserted)


def applies(on: str, broker: Versioned) -> bool:
    """Whether the condition holds for this broker; an unknown version is one of RabbitMQ 4's successors."""
    match = _CONDITION.fullmatch(on)
    assert match is not None, on
    name, operator, version = match.groups()
    if name != broker.name:
        return False
    if operator is None:
        return True
    older = parsed(broker.version) < parsed(version)
    return older if operator == "<" else not older


def parsed(version: str) -> tuple[int, ...]:
    """ "3.10.8-rc.1" as (3, 10, 8); what is not numbers comes last of all."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else (1 << 30,)
