"""Formats of the journal, one Alembic revision each; run by `amqpd.journal.database` when a journal is opened."""
