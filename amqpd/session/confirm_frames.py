"""What a channel's client is told of its publishes: basic.nack and basic.ack.

What comes in: a channel and what is due of its confirms. What goes out: frames, into the outbox; for the audit
log, what was told.
Rules: refusals go first, one by one; then one basic.ack for all that is safe.
Not here: what is due (`confirms.py`), when (`node/node.py`, at the end of a tick).
"""

from __future__ import annotations

from amqpd.kernel import encode_ack
from amqpd.session.confirms import Confirms
from amqpd.session.ports import ChannelBase
from amqpd.wire.frames import nack_frame


def tell(channel: ChannelBase, confirms: Confirms) -> None:
    connection, audit = channel.connection, channel.shared.audit
    if confirms.unsaid:
        if confirms.recorded is not None:
            for first, last in confirms.unsaid:
                audit.refused(confirms, channel.id, first, last)
        for tag in confirms.refused():
            connection.write(nack_frame(channel.id, tag))
    count = confirms.due()
    if count > 0:
        tags = confirms.singly(count) if count > 1 else None
        if tags:
            connection.write(b"".join([encode_ack(channel.id, tag, False) for tag in tags]))
        else:
            connection.write(encode_ack(channel.id, confirms.confirmed, count > 1))
        if confirms.recorded is not None:
            audit.confirmed(confirms, channel.id, confirms.confirmed)
