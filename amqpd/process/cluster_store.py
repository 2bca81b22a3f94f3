"""How the metadata store of the setting `cluster_store` is reached.

What comes in: settings. What goes out: endpoints, TLS and log-in for the store's client, or StartupError with the
file that is wrong; for a command, the store itself.
Rules: 1. Without `cluster_store_ca` the system's authorities are trusted; etcd's certificate and its name are always
checked.
Not here: the form of the address (`vocabulary/store_address.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.topology.metadata.etcd.gateway import EtcdAccess
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.vocabulary.store_address import parse_store_address


def access_of(settings: Settings) -> EtcdAccess:
    """Raises StartupError."""
    address = parse_store_address(settings.cluster_store)
    tls = _client_context(settings) if address.tls else None
    password = settings.cluster_store_password.get_secret_value()
    return EtcdAccess(address.endpoints, tls, settings.cluster_store_user, password)


@asynccontextmanager
async def store_of(settings: Settings, say: Callable[[str], None] | None = None) -> AsyncIterator[EtcdStore]:
    """The store, open, for a process that is no broker. It is not made. `say`: told that it waits. Raises
    StartupError, StoreUnavailable."""
    name = parse_store_address(settings.cluster_store).name
    store = EtcdStore(access_of(settings), f"{name}/", "command", make=False, say=say)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(store.run)
            yield store
        except Exception as error:  # noqa: BLE001 - raised again, and not as a group
            failure = error
        await store.aclose()
    if failure is not None:
        raise failure


def _client_context(settings: Settings) -> ssl.SSLContext:
    ca, certificate, key = (
        settings.cluster_store_ca,
        settings.cluster_store_certificate,
        settings.cluster_store_key,
    )
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(f"cluster_store_ca: cannot read authorities from {ca}: {error}") from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise StartupError(
                f"cluster_store_certificate: cannot use {certificate} with the key in {key or certificate}: {error}"
            ) from error
    return context
