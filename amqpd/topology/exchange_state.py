"""An exchange as the topology holds it.

What comes in: its record, its matcher, what policies say of it. What goes out: the same, together.
Rules: made again when one of them changes.
Not here: which alternate exchange it has (`state.py`), matching (`amqpd/exchanges/`).
"""

from __future__ import annotations

from amqpd.exchanges import Matcher
from amqpd.vocabulary.records import ExchangeRecord


class ExchangeState:
    """An exchange's record and the matcher that holds its bindings. `alternate` is the name of its alternate
    exchange, by argument or policy, or None; an argument that is not a name counts as none."""

    __slots__ = ("alternate", "matcher", "record")

    def __init__(self, record: ExchangeRecord, matcher: Matcher, alternate: str | None) -> None:
        self.record = record
        self.matcher = matcher
        self.alternate = alternate
