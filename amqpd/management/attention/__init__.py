"""What an operator should look at first: alarms of all nodes, and what waits, is refused or lost without one.

`alarms.py` is the alarms of all nodes, which every page shows, and `directories.py` their data directories that are
not in use; `watch.py` looks at this node's queues and exchanges,
`facts.py` is the form in which nodes tell what it found, with a sentence for each, `gathering.py` asks them, and
`needs.py` puts what is shown in order.
Imports: `amqpd/management/`, `amqpd/node/`. Not here: why one queue or connection is as it is (`why/`).
"""
