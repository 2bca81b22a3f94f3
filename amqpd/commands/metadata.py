"""How commands carry out use cases on metadata, and how all commands say that one was refused.

What comes in: a data directory, a use case (`amqpd/management/`), its arguments. What goes out: what the use case
returns; or its refusal as one sentence, exit code 1.
Rules: it does not matter whether a broker runs on the data directory.
Not here: use cases that need a broker that runs (`running.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click
import trio

from amqpd.management.errors import ManagementError
from amqpd.management.metadata import Metadata
from amqpd.management.stored_metadata import StoredMetadata

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def refusals() -> Iterator[None]:
    """What use cases refuse, as the command line says it."""
    try:
        yield
    except ManagementError as error:
        raise click.ClickException(str(error)) from error


def carry_out(
    data_dir: Path,
    use_case: Callable[Concatenate[Metadata, P], Awaitable[T]],
    *arguments: P.args,
    **named: P.kwargs,
) -> T:
    """Raises ClickException."""
    with refusals():
        return trio.run(partial(use_case, StoredMetadata(data_dir), *arguments, **named))
