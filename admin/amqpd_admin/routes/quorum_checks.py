"""Health checks of quorum queues: which would stop without this node, which nobody leads.

What comes in: a request. What goes out: 200 with `status: ok`, or 503 with the reason, and `queues`.
Rules: 1. It is what this node has heard of the cluster; how many copies count is said by their source's leader alone.
2. At most QUEUES_MAX queues are named, and only to who may see their virtual host; all of them count.
Source: https://www.rabbitmq.com/docs/monitoring#health-checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from amqpd.management.pacing import WalkPace, each
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Asking, Who
from amqpd_admin.paths import Name
from amqpd_admin.routes.health import answer
from amqpd_admin.views import expression

router = api_router("health", "/health/checks")
LEADERS = "/quorum-queues-without-elected-leaders"
QUEUES_MAX = 1000
CRITICAL = "There are quorum queues that would lose their quorum if the target node is shut down"
UNLED = "Detected quorum queues without an elected leader"


@router.get("/node-is-quorum-critical")
async def critical(who: Asking) -> Response:
    """No quorum queue would stop without this node."""
    if who.parts.cluster is None:
        return reply({"status": "ok", "reason": "single node cluster"})
    here = who.parts.on.node.identity.name

    def would_stop(found: Any) -> int | None:
        # No more than a majority of the copies is there, this node's among them.
        is_needed = here in found.living and len(found.living) <= len(found.members) // 2 + 1
        return found.source if is_needed else None

    sources = set(await each(who.parts.cluster().source_statuses({}), would_stop))
    return await _about(who, CRITICAL, sources.__contains__)


@router.get(LEADERS + "/all-vhosts")
async def leaders(who: Asking) -> Response:
    """Of all quorum queues."""
    return await _led(who)


@router.get(LEADERS + "/all-vhosts/pattern/{pattern}")
async def leaders_alike(pattern: Name, who: Asking) -> Response:
    """Of those whose name fits."""
    return await _led(who, pattern=pattern)


@router.get(LEADERS + "/vhost/{vhost}")
async def leaders_in_vhost(vhost: Name, who: Asking) -> Response:
    """Of those in a virtual host."""
    return await _led(who, vhost)


@router.get(LEADERS + "/vhost/{vhost}/pattern/{pattern}")
async def leaders_alike_in_vhost(vhost: Name, pattern: Name, who: Asking) -> Response:
    """Of those in a virtual host whose name fits."""
    return await _led(who, vhost, pattern)


async def _led(who: Who, vhost: str | None = None, pattern: str = "") -> Response:
    """Each has a leader that serves. Raises Refusal."""
    if vhost is not None:
        who.parts.on.vhost(vhost)
    matches = expression(pattern, what="pattern", any_case=False) if pattern else None
    if who.parts.cluster is None:
        return answer()  # a node alone leads all of its queues
    statuses = who.parts.cluster().source_statuses({})
    led = set(await each(statuses, lambda it: it.source if it.has_majority and it.leader in it.living else None))
    return await _about(who, UNLED, lambda source: source not in led, vhost, matches)


async def _about(
    who: Who,
    reason: str,
    wanted: Callable[[int], bool],
    vhost: str | None = None,
    matches: Callable[[str], bool] | None = None,
) -> Response:
    """The queues of these sources, if there are any. `vhost`: in this one; None: in all. `matches`: their names."""
    pace, count = WalkPace(), 0
    rows: list[dict[str, str]] = []
    for name, found in list(who.parts.on.node.topology.vhosts.items()):
        if vhost is not None and name != vhost:
            continue
        for record in list(found.queues.values()):
            await pace.step()
            if not record.source or not wanted(record.source) or (matches is not None and not matches(record.name)):
                continue
            count += 1
            if len(rows) < QUEUES_MAX and who.sees(name):
                rows.append(
                    {
                        "readable_name": f"queue '{record.name}' in vhost '{name}'",
                        "name": record.name,
                        "virtual_host": name,
                        "type": "rabbit_quorum_queue",
                    }
                )
    return answer(reason, queues=rows) if count else answer()
