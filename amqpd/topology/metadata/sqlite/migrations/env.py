"""Alembic's entry: runs the steps on the connection that `database.py` hands over, in its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
