"""Messages in queues, for an operator: listed, got, published, deleted, moved.

`operations.py` are the use cases; `requests.py` reads which messages are meant, `leader_queues.py` finds their queue,
`bodies.py` brings what is on disk, `repair.py` takes messages out.
May import: `amqpd.node` and what is below it. Shell.
Not here: where messages stand in a queue (`amqpd.queues`).
"""
