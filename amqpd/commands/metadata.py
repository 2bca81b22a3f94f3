"""How commands carry out use cases on metadata.

What comes in: a data directory, a use case (`amqpd/management/`), its arguments. What goes out: what the use case
returns; or its refusal as one sentence, exit code 1.
Rules: 1. It does not matter whether a broker runs on the data directory. 2. Where that has no metadata.db, the
settings of the whole command line (`amqpd --config`), file and environment say in which cluster's store they are.
Not here: use cases that need a broker that runs (`running.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click
import trio

from amqpd.commands.refusals import refusals
from amqpd.config import Settings
from amqpd.management.metadata.interface import ManagedMetadata
from amqpd.management.metadata.stored import FILE_NAME, OpenStore, StoredMetadata
from amqpd.process.config_sources import load_settings
from amqpd.vocabulary.escapes import escaped

P = ParamSpec("P")
T = TypeVar("T")


def carry_out(
    data_dir: Path,
    use_case: Callable[Concatenate[ManagedMetadata, P], Awaitable[T]],
    *arguments: P.args,
    **named: P.kwargs,
) -> T:
    """Carries out a use case on the broker's metadata, or the file's. Raises ClickException."""
    with refusals():
        stored = StoredMetadata(data_dir, _elsewhere(data_dir))
        return trio.run(partial(use_case, stored, *arguments, **named))


def cluster_settings(data_dir: Path) -> Settings | None:
    """Those that say in which cluster's store the data directory's metadata are; None: in none. Raises
    StartupError."""
    if (data_dir / FILE_NAME).exists():
        return None
    context = click.get_current_context(silent=True)
    # What `amqpd --config` named is in them; without a command line there are the environment's.
    settings = context.find_object(Settings) if context is not None else None
    settings = settings or load_settings()
    return settings if settings.cluster_store else None


def _elsewhere(data_dir: Path) -> OpenStore | None:
    """What opens the store of `cluster_store`, if the settings of file and environment have one, and the data
    directory has no store of its own. Raises StartupError."""
    settings = cluster_settings(data_dir)
    if settings is None:
        return None
    try:
        from amqpd.process.cluster_store import store_of  # its HTTP client: only when it is needed
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"cluster_store needs {error.name}: pip install '.[etcd]' in a checkout of amqpd"
        ) from error
    return partial(store_of, settings, _say)


def _say(text: str) -> None:
    """While it waits; what is asked for is on standard output."""
    click.echo(escaped(text), err=True)
