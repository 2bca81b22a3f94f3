"""The journal's disk: one SQLite database in WAL mode.

The walk: `disk.py` implements `Disk` (`journal/disk.py`): a commit is one SQL statement (`statements.py`, on the
tables of `schema.py`) and one fsync; `work.py` and `statement_parameters.py` bring a transaction into that
statement's shape. What is too much to delete at once becomes a discard, and leaves in pieces (`discards.py`).
`checkpoints.py` keeps the log small. At start `database.py` looks whose file it is, creates or migrates it
(`migrations/`, Alembic), `trust.py` asks whether it has all that it promised, and `recovery.py` reads the index back
(`queries.py` is the SQL that reads, `checksums.py` what each record is held against). `reading.py` reads bodies for
the queues, `scrubbing.py` all of them, slowly. `reserve.py` holds space back for the day when the disk is full.
Of sources that are replicated: `payload.py` makes an entry's bytes at its leader, `entry_checks.py` looks at those of
other nodes, `entries.py` carries out what is written of them (`entry_statements.py`) beside a `draft.py` of what is
known in memory; `sources.py` knows how far each is and what of it is committed, `undoing.py` takes back a tail that
is not. `replicas.py` and `replica_reading.py` read tails, votes and a leader's queues back. `outcome.py`: what
several disks leave out of a transaction.
May import: `amqpd.journal`, `amqpd.replication`, `amqpd.storage`. Shell, except the arithmetic of a commit.
Not here: when a transaction is cut (`journal/buffer.py`).
"""
