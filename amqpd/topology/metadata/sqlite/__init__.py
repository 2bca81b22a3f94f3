"""The metadata store in one SQLite database, `metadata.db`.

The walk: `store.py` implements the contract, calls gather in `batch.py`, `sqlite_file.py` has
the file open. At start `database.py` looks at it, creates or migrates it (`migrations/`, Alembic); `promises.py` says
what is missing, `verification.py` what is damaged, `copies.py` keeps the last good ones.
May import: `amqpd.topology.metadata`, `amqpd.storage`. Shell.
"""
