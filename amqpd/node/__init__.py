"""What all connections share: the queues by name, the end of a tick, what waits for the disk, alarms, orphans.

May import: `amqpd.publishing` and what is below it. Pure.
Not here: sockets (`amqpd.pump`), the disk (`amqpd.journal`), what an operator asks (`amqpd.management`).
"""
