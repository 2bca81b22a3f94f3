"""Which user a client is, and what that user may do.

The walk: `sasl.py` reads what a client claims, `authentication/` checks it, `access.py` decides each operation;
`rabbitmq_hashes.py` are passwords that came with definitions.
May import: `amqpd.topology` and what is below it. Pure, except `authentication/`.
Not here: TLS (`amqpd.transport`).
"""
