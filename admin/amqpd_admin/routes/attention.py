"""What needs attention, of all nodes. Our own; RabbitMQ has no such route.

What comes in: who asks. What goes out: sentences, the most urgent first, with the page where somebody acts.
Rules: a user who does not monitor is told of the virtual hosts that it may enter, of its own connections, and which
alarms are on.
Not here: where it comes from (`amqpd/management/attention/`), what holds one queue up (`routes/why.py`).
"""

from __future__ import annotations

from starlette.responses import Response

from amqpd.management.attention.gathering import needs_of
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Asking

router = api_router("attention", "/amqpd/attention")


@router.get("")
async def look(who: Asking) -> Response:
    """`needs`: each with `severity` (bad or warn), `kind`, `subject` (node, vhost, name), `says`, `link` (behind the
    pages' address), `since_ms` and `clearable` (an alarm that an operator has set)."""
    return reply({"needs": await needs_of(who.parts, None if who.monitors else who.user)})
