"""The revisions, oldest first; alembic.ini is not needed: `amqpd.journal.sqlite.database.migrate` runs them."""
