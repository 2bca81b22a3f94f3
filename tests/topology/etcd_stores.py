"""Metadata stores on a private etcd, for tests.

What comes in: an etcd process, a prefix. What goes out: open stores, closed again at the end.
Rules: 1. One etcd serves all contract tests of a process, each with a prefix of its own; a test that hurts etcd has
one for itself.
Not here: the process (`tests/harness/etcd.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from tests.harness.etcd import EtcdProcess

if TYPE_CHECKING:
    from amqpd.topology.metadata.etcd.store import EtcdStore

_prefixes = itertools.count(1)


def new_prefix() -> str:
    return f"amqpd-test-{next(_prefixes)}/"


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """For tests that leave it as it is."""
    process = EtcdProcess(tmp_path_factory.mktemp("etcd") / "data")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """For one test, which may hurt it."""
    process = EtcdProcess(tmp_path / "etcd")
    process.start()
    yield process
    process.stop()


@asynccontextmanager
async def etcd_stores(
    endpoint: str, prefix: str = "amqpd/", wait_s: float = 20.0
) -> AsyncIterator[Callable[[], Awaitable[EtcdStore]]]:
    """A function that opens one store more over the same keys."""
    pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")
    from amqpd.topology.metadata.etcd.gateway import EtcdAccess
    from amqpd.topology.metadata.etcd.store import EtcdStore

    async with trio.open_nursery() as nursery, AsyncExitStack() as opened:

        async def open_store() -> EtcdStore:
            store = EtcdStore(EtcdAccess((endpoint,)), prefix, "node", wait_s=wait_s)
            await nursery.start(store.run)
            opened.push_async_callback(store.aclose)
            return store

        yield open_store
