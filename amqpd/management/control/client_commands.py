"""Commands that list the clients of all nodes, and close their connections.

What comes in: a command's arguments as JSON; which nodes there are. What goes out: rows, counts; in a cluster
`nodes_missing`, the nodes that did not answer, each with what is known of it.
Rules: as in `commands.py`.
Not here: asking the other nodes (`management/across_nodes/clients.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from amqpd.management.across_nodes import clients
from amqpd.management.across_nodes.clients import Clients
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.connections import CloseRequest
from amqpd.management.control.answers import EndedStream, Handler, Result, caller
from amqpd.management.control.arguments import Arguments, optional
from amqpd.management.running import Running

Rows = list[dict[str, Any]]
Listed = Callable[[Clients, Arguments], AsyncGenerator[Rows, None]]


def handlers(on: Running, leaders: Callable[[], Leaders]) -> Mapping[str, Handler]:
    """`leaders`: of this moment."""

    async def close(arguments: Arguments) -> dict[str, Any]:
        request = CloseRequest(
            which=optional(arguments, "id"),
            user=optional(arguments, "user"),
            vhost=optional(arguments, "vhost"),
            everything=arguments.get("all") is True,
            reason=optional(arguments, "reason"),
        )
        done = await clients.close(on, leaders(), caller(), request)
        return {"closed": done.count, "nodes_missing": done.missing}

    return {"connection close": close}


def streams(on: Running, leaders: Callable[[], Leaders]) -> Mapping[str, EndedStream]:
    """The commands that list clients, by their names; `leaders`: of this moment."""

    def listed(of: Listed) -> EndedStream:
        async def rows(arguments: Arguments) -> AsyncGenerator[Rows | Result, None]:
            now = leaders()
            found = Clients(on, now)
            async for page in of(found, arguments):
                yield page
            if now.clustered:
                yield Result({"nodes_missing": found.missing})

        return rows

    return {
        "connection list": listed(Clients.connections),
        "channel list": listed(Clients.channels),
        "consumer list": listed(Clients.consumers),
    }
