"""Formats of the journal, one Alembic revision each; run by `amqpd.journal.sqlite.database` when a journal is
opened."""
