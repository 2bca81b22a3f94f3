"""Limits: how many of what there may be, how fast clients may publish, whose turn it is.

The walk: `census.py` counts connections, channels, queues and exchanges, `quotas.py` slows publishers down to their
rate (`bucket.py`), `turns.py` makes those wait that have had their share of a tick, `unfinished.py` bounds what
clients begin and do not finish.
May import: `amqpd.topology` and what is below it. Pure.
Not here: what is short on the whole node (`amqpd.node`), the limits themselves (`vocabulary/limits.py`).
"""
