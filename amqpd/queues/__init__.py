"""Queues: messages in order, given to consumers that have credit, expiring, dying, coming back.

The walk: `queue.py` is one queue; its messages stand in a `backlog.py` (or one for each priority, `levels.py`), which
keeps them in segments (`segments.py`, `segment.py`) in memory, on the disk or both. `turns.py` says which consumer is
next, `settings.py` what arguments and policies want, `mortality.py` what they make of it; `delayed.py` keeps what is
not yet published. `host.py` is what a queue asks of whoever has it.
May import: the journal's buffer and what is below it. Pure.
Not here: how messages come to a queue (`amqpd.publishing`), which queues there are (`amqpd.node`).
"""
