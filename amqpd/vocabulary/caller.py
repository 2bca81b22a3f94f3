"""A user who asks for something by another way than AMQP.

Not here: clients of the protocol (`client.py`), what a user may do (`amqpd.security`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """A user who asks for something by another way than AMQP. `address` is empty where the one that knows the user
    does not know it."""

    user: str
    address: str = ""


CLI_USER = "rmq-cli"
"""RabbitMQ's name of a command that does something with the rights of a process that may write the broker's files"""
COMMAND_LINE = Caller(CLI_USER)
