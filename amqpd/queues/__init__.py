"""Queues: messages in order, given to consumers that have credit, expiring, dying, coming back.

The walk: `port.py` is what everything outside reaches a queue by, `leader.py` what only the parts of its own node ask
of it, `queue.py` a queue at its leader. All that there is of its messages is `messages.py` (one for each priority,
`levels.py`): segments (`segment.py`) in order (`store.py`), when to look at which (`agenda.py`, `timetable.py`),
over them which messages are ready (`backlog.py`), and over that what expires (`expiry.py`), what is in memory or
on the disk (`paging.py`) and what clients of other nodes hold (`claimed.py`); each knows those below it. `turns.py`
says which consumer is next, `settings.py` what arguments and policies want, `removal.py` what they make of it;
`delayed.py` keeps what is not yet published, `transit.py` knows what is on its way to other nodes. `host.py` is what
a queue asks of its node.
May import: the journal's buffer and what is below it. Pure.
Not here: how messages come to a queue (`amqpd.publishing`), which queues there are (`amqpd.node`).
"""
