"""What the tests of commands share: a stopped broker's data directory, and commands run as people run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import trio
from click.testing import CliRunner, Result

from amqpd.__main__ import cli
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.sqlite.store import SqliteStore


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stopped broker's. Hashing is cheap, but with real hashes."""
    from argon2 import PasswordHasher

    from amqpd.security.authentication import passwords

    monkeypatch.setattr(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))

    async def start_once() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.db")
        await bootstrap(store)
        await store.aclose()

    trio.run(start_once)
    return tmp_path


@pytest.fixture
def run(data_dir: Path) -> Callable[..., Result]:
    def run(*words: str, stdin: str | None = None) -> Result:
        settings = SimpleNamespace(data_dir=data_dir)
        command = cli.get_command(click.Context(cli), words[0])
        assert command is not None, words[0]
        return CliRunner().invoke(command, words[1:], obj=settings, input=stdin, prog_name=words[0])

    return run


@pytest.fixture
def ok(run: Callable[..., Result]) -> Callable[..., str]:
    def ok(*words: str, stdin: str | None = None) -> str:
        result = run(*words, stdin=stdin)
        assert result.exit_code == 0, (result.output, result.exception)
        return str(result.stdout)

    return ok


@pytest.fixture
def refused(run: Callable[..., Result]) -> Callable[..., str]:
    """The sentence of a command that ends with exit code 1."""

    def refused(*words: str, stdin: str | None = None) -> str:
        result = run(*words, stdin=stdin)
        assert result.exit_code == 1, (result.output, result.exception)
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        return str(result.stderr.removeprefix("Error: ").strip())

    return refused
