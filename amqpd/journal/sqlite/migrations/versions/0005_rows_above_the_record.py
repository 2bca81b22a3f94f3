"""No table changes: the record of the local source may be a few transactions of one row behind (`one_row.py`).

A version that does not know that would take such a journal for a damaged one.
"""

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    pass
