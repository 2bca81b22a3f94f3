"""What a connection and its channels are made of: handshake, intake, consumers, confirms, unacknowledged deliveries.

The walk: `connection.py` and `channels.py`, above this package, hold these parts together.
May import: queues and what is below them. Pure.
Not here: the methods of AMQP (`amqpd.methods`), what a publish does (`amqpd.publishing`).
"""
