"""The revisions, oldest first; alembic.ini is not needed: `amqpd.journal.database.migrate` runs them."""
