"""How an operator asks for a declaration: with the checks of the protocol, and waiting for the answer.

What comes in: an act of `amqpd/declarations/`, or another that asks for permissions; who asks for it. What goes out:
what the act gives back; or its refusal as the `ManagementError` of that kind.
Rules: the words of a refusal stay RabbitMQ's, because tools compare them: NAME - explanation is the client's form,
the explanation alone is the operator's.
Not here: the acts themselves, the checks (`amqpd/declarations/`, `amqpd/publishing/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pamqp.exceptions import (
    AMQPAccessRefused,
    AMQPError,
    AMQPNotAllowed,
    AMQPNotFound,
    AMQPNotImplemented,
    AMQPResourceLocked,
)

from amqpd.declarations.asker import Asker
from amqpd.declarations.names import Inequivalent, NotLedHere
from amqpd.flow.client_counters import LimitReached
from amqpd.management.errors import (
    AlreadyExists,
    AtAnotherNode,
    BadArgument,
    Conflict,
    ManagementError,
    NotFound,
    NotPermitted,
)
from amqpd.management.metadata.interface import NAME_BYTES_MAX
from amqpd.management.operators import Operator
from amqpd.management.running import NodeAnswer, Running
from amqpd.wire.json_values import BadValue, from_json

T = TypeVar("T")


async def ask(
    on: Running,
    by: Operator,
    vhost: str,
    act: Callable[[Asker, Callable[[T], None]], None],
    *,
    otherwise: type[ManagementError] = BadArgument,
) -> T:
    """What the act calls its second argument with. Raises NotFound for the virtual host, NotPermitted, Conflict for a
    limit that is reached, AlreadyExists for something that is there with other properties, and `otherwise` for
    another precondition that does not hold."""
    on.vhost(vhost)
    answer: NodeAnswer[T] = NodeAnswer()

    def suspend(continuation: Callable[..., None]) -> Callable[..., Any]:
        def still_there(*results: Any) -> None:
            on.vhost(vhost)  # it may have been deleted meanwhile
            continuation(*results)

        return answer.guarded(still_there)

    with refusals(otherwise):
        try:
            act(Asker(on.node, vhost, suspend, by.user), answer.give)
            on.run_effects()
            return await answer.wait()
        except Inequivalent as error:
            raise AlreadyExists(str(error)) from error
        except LimitReached as error:
            raise Conflict(str(error)) from error


def checked_name(what: str, name: str) -> str:
    """Without CR and LF, as clients' are stored. Raises BadArgument for one that no client could use."""
    try:
        nbytes = len(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise BadArgument(f"the {what} is not UTF-8") from None
    if nbytes > NAME_BYTES_MAX:
        raise BadArgument(f"the {what} is longer than {NAME_BYTES_MAX} bytes")
    return name.replace("\r", "").replace("\n", "")


def checked_arguments(arguments: Any) -> dict[str, Any]:
    """A field table, of an object of JSON. Raises BadArgument."""
    if not isinstance(arguments, dict):
        raise BadArgument("arguments must be an object")
    try:
        found: dict[str, Any] = from_json(arguments)
    except BadValue as error:
        raise BadArgument(f"arguments: {error}") from None
    return found


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
