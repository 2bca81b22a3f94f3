"""The journal: what makes a message durable.

The walk: queues hand rows, settled ranges and deletions to `buffer.py`, which cuts them into transactions, one at a
time. `disk.py` is the interface below it, and says what a disk does with a transaction. `writer.py` is the task that
takes them to a disk, in a thread; `sqlite/` is that disk. Confirms wait for the journal by its
lanes (`lane.py`, docs/decisions/lanes.md). What can go wrong has a name in `errors.py`.
Rules: 1. Everything of a transaction is on the disk, or nothing. 2. A failed write stops the node; only a full disk,
where nothing was written, may be tried again. 3. Damage is told, never skipped.
May import: `amqpd.kernel`, and the values of `amqpd.replication`. Pure, except the writer.
Not here: when a confirm is sent (`amqpd.session`), and what a message is (`amqpd.queues`).
"""
