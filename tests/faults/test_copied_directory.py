"""A copy of a data directory that is started beside its original: it is refused, and the original goes on."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import commands

from amqpd.datadir.lock import LOCK_NAME
from amqpd.journal.sqlite.database import JOURNAL
from amqpd.journal.sqlite.schema import PAGE_BYTES
from amqpd.setting_types import complete_node_name
from amqpd.storage.files import mark_path, wal_path
from amqpd.storage.mark import read_mark
from amqpd.storage.wal import read_end
from tests.harness.slow import slow

from ..clients.broker_process import BrokerProcess
from ..clients.wire import Wire, publish_bytes
from ..harness.etcd import free_ports
from ..harness.namespaces import Machines
from .cluster import Cluster
from .test_host_names import called

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="such a claim is Linux's")

WAL_HEADER, WAL_FRAME = 32, 24 + PAGE_BYTES
"""bytes: sqlite.org/fileformat2.html, section 4"""


def copied(original: Path, to: Path) -> Path:
    shutil.copytree(original, to, ignore=lambda _, names: [each for each in names if each.endswith(".sock")])
    return to


def refused(broker: BrokerProcess) -> str:
    broker.spawn()
    assert broker.wait() == 1
    return broker.log.splitlines()[-1]


@pytest.mark.slow
def test_the_copy_of_a_node_alone_is_refused_beside_it(tmp_path: Path) -> None:
    original = BrokerProcess(tmp_path / "original")
    copy = BrokerProcess(tmp_path / "copy")
    try:
        original.start()
        copied(original.data_dir, copy.data_dir)
        for stopped in (False, True):
            original.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
            sentence = refused(copy)
            assert sentence.startswith(f"amqpd: {copy.data_dir} is a copy of the data directory of a node that runs")
            assert f"process {original.broker_pid}, with {original.data_dir};" in sentence
            assert "give it a node_name of its own to look at it beside its original" in sentence
        original.send_signal(signal.SIGCONT)
        copy.environment["AMQPD_NODE_NAME"] = "look"
        copy.start()
        assert copy.terminate() == 0
        assert original.terminate() == 0
        del copy.environment["AMQPD_NODE_NAME"]
        copy.start()
    finally:
        copy.close()
        original.close()


def torn(directory: Path) -> None:
    """As a copy of a running node's directory is: the log ends before what its mark has promised."""
    log = wal_path(directory / JOURNAL)
    promised, whole = read_mark(mark_path(directory / JOURNAL)), read_end(log).frames
    assert promised is not None
    assert promised.number > 1
    assert whole > 1
    with log.open("r+b") as file:
        file.truncate(WAL_HEADER + (whole // 2) * WAL_FRAME)


def publish(broker: BrokerProcess, count: int, queue: str = "q") -> None:
    """Durable messages, each confirmed: a transaction each."""
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue=queue, durable=True), channel=1)
        wire.call(commands.Confirm.Select(), channel=1)
        for _ in range(count):
            wire.send_bytes(publish_bytes(1, "", queue, b"x", commands.Basic.Properties(delivery_mode=2)))
            assert isinstance(wire.read_method()[1], commands.Basic.Ack)
        wire.close()


@pytest.mark.parametrize(
    ("disks", "arguments"), [(1, []), slow(1, ["--accept-loss"]), slow(3, []), slow(3, ["--accept-loss"])]
)
def test_a_torn_copy_is_first_told_whose_it_is(tmp_path: Path, disks: int, arguments: list[str]) -> None:
    """It was told that messages were lost, and to accept that, which it did before it knew that it is a copy."""
    original = BrokerProcess(tmp_path / "original")
    copy = BrokerProcess(tmp_path / "copy", arguments=arguments)
    names = [f" {number}" for number in range(disks - 1)]
    try:
        for name in names:
            original.arguments += ["--data-dir", f"{original.data_dir}{name}"]
            copy.arguments += ["--data-dir", f"{copy.data_dir}{name}"]
        original.start()
        publish(original, 20)
        for name in ("", *names):
            torn(copied(Path(f"{original.data_dir}{name}"), Path(f"{copy.data_dir}{name}")))
        before = files(tmp_path, "copy*/*")
        sentence = refused(copy)
        assert sentence.startswith(f"amqpd: {copy.data_dir} is a copy of the data directory of a node that runs")
        assert f"process {original.broker_pid}, with {original.data_dir}" in sentence
        assert "was confirmed" not in copy.log
        assert files(tmp_path, "copy*/*") == before
        assert original.terminate() == 0
        copy.spawn()
        if not arguments:  # the original has ended: now it is told what it lacks
            assert copy.wait() == 1
            assert "was confirmed" in copy.log
        else:
            copy.wait_ready()
    finally:
        copy.close()
        original.close()


def files(directory: Path, pattern: str) -> dict[Path, bytes]:
    """But the lock, in which a start writes its number."""
    found = directory.glob(pattern)
    return {each: each.read_bytes() for each in found if each.is_file() and each.name != LOCK_NAME}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_the_copy_of_a_clusters_node_is_refused_and_takes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """It ended the original's leases in etcd, and with them the original."""
    original = cluster.brokers["a"]
    cluster.declare_quorum("a", ["q"])
    publish(original, 20, "classic")
    assert original.terminate(60) == 0
    copies = [copied(original.data_dir, tmp_path / "of a stopped one")]
    original.start()
    copies.append(copied(original.data_dir, tmp_path / "of a running one"))
    copies.append(copied(original.data_dir, tmp_path / "on another host"))
    copies.append(copied(original.data_dir, tmp_path / "torn"))
    torn(copies[-1])
    pid = original.broker_pid
    for directory in copies:
        [port] = free_ports(1)
        copy = BrokerProcess(
            directory, environment={**original.environment, "AMQPD_CLUSTER_LISTEN": f"127.0.0.1:{port}"}
        )
        if directory.name == "on another host" and os.geteuid() == 0 and shutil.which("unshare"):
            copy.prefix = list(called("elsewhere"))
        for stopped in (False, True):
            before = leases_of(cluster)
            if stopped:
                original.send_signal(signal.SIGSTOP)
            sentence = refused(copy)
            assert "was confirmed" not in copy.log
            assert sentence.startswith(f"amqpd: {directory} is a copy of the data directory of a node that runs")
            assert "a new node starts with an empty data directory" in sentence
            assert leases_of(cluster) == before
            original.send_signal(signal.SIGCONT)
    cluster.leader_of(["q"])
    with Wire(original.port) as wire:
        wire.open()
        wire.open_channel()
        found = wire.call(commands.Queue.Declare(queue="classic", passive=True), channel=1)
        assert found.message_count == 20
        wire.close()
    assert original.broker_pid == pid
    assert original.running
    assert {row["name"]: row["lives"] for row in cluster.status()["members"]}[str(complete_node_name("a"))]


def leases_of(cluster: Cluster) -> set[str]:
    """The notes of leases of all nodes: one that is ended, or begun, changes them."""
    key, end = (base64.b64encode(text).decode() for text in (b"test/node/", b"test/node0"))
    found = cluster.etcd.ask("/v3/kv/range", {"key": key, "range_end": end}).get("kvs", [])
    names = {base64.b64decode(each["key"]).decode() for each in found}
    return {each for each in names if "/incarnation/lease/" in each}


@pytest.mark.slow
def test_a_copy_on_another_machine_is_refused_while_the_original_lives(tmp_path: Path) -> None:
    """And takes its place when that is killed."""
    machines = Machines("abd")
    try:
        cluster = Cluster(tmp_path, "ab", machines=machines)
        try:
            cluster.start()
            original = cluster.brokers["a"]
            directory = copied(original.data_dir, tmp_path / "d")
            [port] = free_ports(1)
            listen = f"{machines.address('d')}:{port}"
            environment = {**original.environment, "AMQPD_CLUSTER_LISTEN": listen}
            copy = BrokerProcess(directory, environment=environment, prefix=machines.prefix("d"))
            try:
                before = leases_of(cluster)
                assert "this data directory is a copy of its own" in refused(copy)
                assert leases_of(cluster) == before
                assert original.running
                original.kill()
                shutil.rmtree(directory)
                copied(original.data_dir, directory)
                copy.start()
            finally:
                copy.close()
        finally:
            cluster.close()
    finally:
        machines.close()
