"""What the nodes of a cluster tell each other for an operator.

`rows.py` asks, and keeps for a moment what came; `answers.py` answers; `queue_figures.py` is what only a queue's
leader knows of it.
May import: `amqpd.management.figures` and the use cases. Shell.
Not here: the way from node to node (`amqpd.cluster`).
"""
