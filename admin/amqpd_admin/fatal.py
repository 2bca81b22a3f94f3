"""What ends the node, met in a request.

What comes in: an application. What goes out: the same; whoever runs it is told of what no request may outlive
(`faults.ENDS_NODE`).
Rules: 1. It is told at once: an answer to the request (500) is sent by what is around this one, and may take its
time. 2. It is found also within a group of exceptions, which a nursery makes of them.
Not here: what becomes of other exceptions (`answers.py`), how the node ends (`server.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from amqpd.errors import leaves
from amqpd.faults import ENDS_NODE


def ends_node(error: BaseException) -> bool:
    return any(isinstance(leaf, ENDS_NODE) for leaf in leaves(error))


class Fatal:
    """A wrapper of an application that tells of exceptions which end the node; as middleware, inside of
    Starlette's own that answers 500."""

    def __init__(self, app: ASGIApp, tell: Callable[[BaseException], None]) -> None:
        self._app = app
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except BaseException as error:
            if ends_node(error):
                self._tell(error)
            raise
