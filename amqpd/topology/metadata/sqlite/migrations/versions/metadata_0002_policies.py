"""Policies, parameters and limits of users: new kinds of records, in the same tables.

An amqpd that does not know them is to say by this revision that it is too old, and not to call them damage."""

revision = "metadata_0002"
down_revision = "metadata_0001"


def upgrade() -> None:
    """Nothing: old records are read as before."""
