"""Refusals of the protocol's checks, as an operator is told them.

What comes in: what a declaration, a binding or a publish by a client would be refused with. What goes out: the
`ManagementError` of that kind, with the same words.
Rules: the words stay RabbitMQ's, because tools compare them: NAME - explanation is the client's form, the explanation
alone is the operator's.
Not here: the checks (`amqpd/declarations/`, `amqpd/publishing/`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPError,
    AMQPNotAllowed,
    AMQPNotFound,
    AMQPNotImplemented,
    AMQPResourceLocked,
)

from amqpd.declarations.names import NotLedHere
from amqpd.management.errors import AtAnotherNode, BadArgument, Conflict, ManagementError, NotFound, NotPermitted

# A precondition that does not hold is a bad argument in most cases; a use case that knows better says so.
KINDS: dict[type[AMQPError], type[ManagementError]] = {
    AMQPAccessRefused: NotPermitted,
    AMQPNotAllowed: NotPermitted,
    AMQPNotFound: NotFound,
    AMQPNotImplemented: BadArgument,
    AMQPResourceLocked: Conflict,
    NotLedHere: AtAnotherNode,
}


@contextmanager
def refusals(otherwise: type[ManagementError] = BadArgument) -> Iterator[None]:
    """Raises what the protocol's exception is to an operator; `otherwise` for a precondition that does not hold."""
    try:
        yield
    except AMQPError as error:
        raise KINDS.get(type(error), otherwise)(str(error)) from error
