"""What an exchange may look at of a message.

What comes in: routing keys, headers, raw properties, chance, and which queues are served. What goes out: the same,
and in `kept_by` the exchanges on the way that keep what passes through them.
Rules: 1. The first routing key is the one that it was published with, others are of its CC and BCC headers. 2. A
property is read when an exchange asks for it.
Not here: what decides what is looked at (`matcher.py`, `Reads`), the message's body: no exchange looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amqpd.message.propertylist import PropertyList


class Message:
    """A message, as matchers may read it: routing keys, headers, properties, and a random number."""

    __slots__ = ("_properties", "chance", "headers", "kept_by", "routing_keys", "serves")

    def __init__(
        self,
        routing_keys: tuple[str, ...],
        headers: Mapping[str, Any] | None = None,
        properties: bytes = b"\0\0",
        chance: Callable[[], float] = lambda: 0.0,
        serves: Callable[[str, str], bool] = lambda _vhost, _queue: True,
    ) -> None:
        """`properties` are the flags and list of the content header; `chance` gives numbers from 0.0 to below 1.0;
        `serves` says whether the node serves the queue of this virtual host and name."""
        self.routing_keys = routing_keys
        self.headers = headers
        self.chance = chance
        self.serves = serves
        self.kept_by: dict[str, int] = {}
        """exchanges that keep what passes, with the number of messages"""
        self._properties = properties

    def property(self, flag: int) -> bytes | None:
        """The property of this bit (see `message/propertylist.py`) as it stands in the list, or None. Raises
        ValueError when the list does not fit its flags."""
        return PropertyList(self._properties).fields.get(flag)
