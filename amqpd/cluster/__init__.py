"""Forwarders that work together: who they are, how they talk, and who is the home of what.

The walk: `links/` are the connections between forwarders.
May import: `amqpd.replication`, whose machines it runs, and what is below it. Shell: sockets and clocks are here.
Not here: what is decided about copies (`amqpd.replication`: pure, and judged by a simulator), a queue's own behaviour
(`amqpd.queues`), the metadata store's contract (`amqpd.topology.metadata`).
"""
