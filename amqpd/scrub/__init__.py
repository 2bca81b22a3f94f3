"""The scrub: every stored row of messages and every record of the journal is read and checked while the node serves.

What comes in: settings, the journal's file, the node. What goes out: fenced queues, lines of the log, facts for
`amqpd status`.
Rules: it is slow on purpose, and gives way to consumers.
Not here: what a damaged row does to its queue (`queues/fences.py`), the check of a stopped node.
"""
