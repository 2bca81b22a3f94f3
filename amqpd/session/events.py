"""What connections, channels and consumers tell of themselves, for the event exchange.

What comes in: nothing. What goes out: a base class, which `amqpd/events/exchange.py` fills.
Rules: 1. Each call costs a look when nobody is interested, and never raises. 2. Things are told once, when they have
taken effect.
Not here: changes of the topology, alarms (`amqpd/node/node.py` tells them), what becomes of it (`amqpd/events/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from amqpd.session.credit import Subscription
from amqpd.session.durability import ConfirmingChannel
from amqpd.vocabulary.client import LoginClient
from amqpd.vocabulary.records import Arguments


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionEvents(ABC):
    """The receiver of the events of sessions: log-ins, connections, channels and consumers that come and go."""

    @abstractmethod
    def logged_in(self, connection: LoginClient, user: str) -> None:
        """The log-in as this user succeeded."""

    @abstractmethod
    def login_refused(self, connection: LoginClient, reason: str) -> None:
        """It did not; the client never learns the reason."""

    @abstractmethod
    def connection_opened(self, connection: LoginClient) -> None:
        """It is in its virtual host."""

    @abstractmethod
    def connection_closed(self, connection: LoginClient) -> None:
        """One that was opened has ended."""

    @abstractmethod
    def channel_opened(self, channel: ConfirmingChannel) -> None: ...

    @abstractmethod
    def channel_closed(self, channel: ConfirmingChannel) -> None: ...

    @abstractmethod
    def consumer_added(self, channel: ConfirmingChannel, consumer: Subscription, arguments: Arguments) -> None: ...

    @abstractmethod
    def consumer_removed(self, channel: ConfirmingChannel, consumer: Subscription) -> None: ...
