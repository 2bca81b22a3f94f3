"""How all commands say that what was asked for is refused.

What comes in: what use cases raise. What goes out: their sentence, and exit code 1.
Rules: this loads nothing else: a command that asks a running broker does not wait for the modules of a database.
Not here: mistakes in words and flags, which click says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from amqpd.management.errors import ManagementError
from amqpd.management.plain_words import plain


@contextmanager
def refusals() -> Iterator[None]:
    """Raises ClickException for a ManagementError."""
    try:
        yield
    except ManagementError as error:
        raise click.ClickException(plain(str(error))) from error
