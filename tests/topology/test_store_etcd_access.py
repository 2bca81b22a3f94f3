"""How etcd is reached: users and passwords, TLS, certificates of clients, tokens that end."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trustme

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.topology.metadata.etcd.gateway import EtcdAccess
from amqpd.topology.metadata.etcd.store import EtcdStore
from amqpd.topology.metadata.store import PutKey, StoreUnavailable
from tests.harness.etcd import EtcdProcess
from tests.topology.etcd_stores import own_etcd as own_etcd
from tests.topology.test_store import put, values

pytestmark = pytest.mark.trio


async def used(access: EtcdAccess) -> None:
    """Open a store, write and read."""
    async with trio.open_nursery() as nursery:
        tried = EtcdStore(access, "amqpd/", "node", wait_s=5)
        await nursery.start(tried.run)
        await put(tried, PutKey("a", "1"))
        assert await values(tried) == {"a": "1"}
        await tried.aclose()


async def refused(access: EtcdAccess, words: str) -> None:
    async with trio.open_nursery() as nursery:
        tried = EtcdStore(access, "amqpd/", "node", wait_s=2)
        with pytest.raises(StoreUnavailable, match=words):
            await nursery.start(tried.run)


async def test_a_user_logs_in_and_a_wrong_password_is_said(own_etcd: EtcdProcess) -> None:
    await trio.to_thread.run_sync(own_etcd.require_log_in, "secret")
    at = (own_etcd.endpoint,)
    await used(EtcdAccess(at, user="root", password="secret"))
    await refused(
        EtcdAccess(at, user="root", password="wrong"), "refuses the user 'root': .*invalid user ID or password"
    )
    await refused(EtcdAccess(at), "user name is empty")


async def test_a_user_is_no_hindrance_where_nobody_logs_in(own_etcd: EtcdProcess) -> None:
    await used(EtcdAccess((own_etcd.endpoint,), user="root", password="secret"))


async def test_a_token_that_etcd_forgot_is_renewed(own_etcd: EtcdProcess) -> None:
    await trio.to_thread.run_sync(own_etcd.require_log_in, "secret")
    async with trio.open_nursery() as nursery:
        tried = EtcdStore(EtcdAccess((own_etcd.endpoint,), user="root", password="secret"), "amqpd/", "node")
        await nursery.start(tried.run)
        await put(tried, PutKey("a", "1"))
        token = tried._gateway._token
        await trio.to_thread.run_sync(own_etcd.stop)
        await trio.to_thread.run_sync(own_etcd.start)
        await put(tried, PutKey("b", "1"))
        assert tried._gateway._token != token
        assert await values(tried) == {"a": "1", "b": "1"}
        await tried.aclose()


@dataclass
class Secured:
    """An etcd that takes clients with a certificate of `ca` only."""

    process: EtcdProcess
    ca: trustme.CA

    def context(self, *, certificate: bool = True, ca: trustme.CA | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=(ca or self.ca).cert_pem.bytes().decode())
        if certificate:
            self.ca.issue_cert("client.test").configure_cert(context)
        return context


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    ca = trustme.CA()
    server = ca.issue_cert("127.0.0.1")
    authority, certificate, key = tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "server.key"
    ca.cert_pem.write_to_path(authority)
    server.cert_chain_pems[0].write_to_path(certificate)
    server.private_key_pem.write_to_path(key)
    options = [
        *("--cert-file", str(certificate), "--key-file", str(key)),
        *("--trusted-ca-file", str(authority), "--client-cert-auth"),
    ]
    process = EtcdProcess(tmp_path / "etcd", options, tls=True)
    process.start()
    yield Secured(process, ca)
    process.stop()


async def test_tls_goes_both_ways(secured: Secured) -> None:
    at = (secured.process.endpoint,)
    await used(EtcdAccess(at, secured.context()))
    await refused(EtcdAccess(at, secured.context(certificate=False)), "certificate required|does not answer")
    await refused(EtcdAccess(at, secured.context(ca=trustme.CA())), "certificate verify failed")
