"""The process that a broker is: clock, signals, logs, memory, alarms, settings' sources, tasks that begin again.

May import: `amqpd.node` and what is below it, `amqpd.config`. Shell.
Not here: its data directory (`amqpd.datadir`), clients' sockets (`amqpd.transport`).
"""
