"""The journal: what makes a message durable, and the only room that touches the disk.

The walk: queues hand rows, settled ranges and deletions to `buffer.py`, which cuts them into transactions, one at a
time. `records.py` is the seam below it: `Transaction` goes in, `Disk` says what a disk does with it. `sqlite.py` is
the disk: a commit is one SQL statement (`statements.py`, on the tables of `schema.py`) and one fsync; `intake.py`
brings a transaction into that statement's shape. What is too much to delete at once becomes a discard, and leaves
in pieces (`discards.py`). At start `database.py` looks whose file it is, creates or migrates it (`migrations/`,
Alembic), `trust.py` asks whether it has all that it promised, and `recovery.py` reads the index back (`queries.py` is
the SQL that reads, `checksums.py` what each record is held against). `reading.py` reads bodies for the queues,
`scrubbing.py` all of them, slowly. `reserve.py` holds space back for the day when the disk is full.
What can go wrong has a name in `errors.py`.
Rules: 1. Everything of a transaction is on the disk, or nothing. 2. A failed write stops the node; only a full disk,
where nothing was written, may be tried again. 3. Damage is told, never skipped.
Not here: when a confirm is sent (the channel, after `durable`), and what a message is (`amqpd.queues`).
"""
