"""What each method that a client may send on a channel does; one file per class of AMQP 0-9-1.

What comes in: the channel and the method. What goes out: an answer, a change for the metadata store, or a soft or
hard error of pamqp.
Rules: 1. A handler checks in RabbitMQ's order, so that a client sees the error it knows. 2. What changes the
topology is answered after the change has come back (`Channel.suspend`).
Not here: basic.publish and basic.ack as they mostly come (`channels.py`), the connection class (`connection.py`).
"""

from __future__ import annotations

from amqpd.methods import basic, channel, exchange, modes, queue
from amqpd.node.node import Handlers

METHODS: Handlers = {
    **channel.METHODS,
    **exchange.METHODS,
    **queue.METHODS,
    **basic.METHODS,
    **modes.METHODS,
}
