"""`amqpd --config FILE` is the configuration of every command, also of those that change what a cluster's store has.

What is verified: against a real etcd, each kind of command with a file that names the store; one record there that
cannot be read keeps no command from the others. Not verified here: which setting counts (`tests/test_config.py`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

from amqpd.__main__ import run
from amqpd.process.cluster_store import store_of
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.codec import encode_key
from amqpd.topology.metadata.store import PutKey
from tests.harness.etcd import EtcdProcess
from tests.topology.etcd_stores import shared_etcd as shared_etcd

from .test_quorum_commands import Store

COMMANDS = (
    ("user", "list"),
    ("user", "tags", "guest", "monitoring"),
    ("permission", "list"),
    ("permission", "set", "/", "guest", "^a", ".*", ".*"),
    ("policy", "set", "/", "p", "^q", '{"max-length": 5}'),
    ("operator-policy", "list"),
    ("vhost", "list"),
    ("vhost", "add", "made"),
    ("limits", "list"),
    ("parameter", "list"),
    ("global-parameter", "list"),
    ("definitions", "export", "-"),
)


@pytest.fixture
def config(shared_etcd: EtcdProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a node whose cluster exists. Nothing in the environment says so."""
    store = Store(shared_etcd.endpoint, tmp_path)
    store.nodes("a")
    monkeypatch.delenv("AMQPD_CLUSTER_STORE", raising=False)
    file = tmp_path / "amqpd.toml"
    address, data_dir = store.settings.cluster_store, tmp_path / "data"
    file.write_text(f'cluster_store = "{address}"\ndata_dir = "{data_dir}"\n')

    async def begin() -> None:
        async with store_of(store.settings) as opened:
            await bootstrap(opened)
            await opened.transact([], [PutKey(encode_key(("queue", "/", "damaged")), "x")])

    trio.run(begin)
    return file


def test_the_file_counts_for_each_command(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ""
    for words in COMMANDS:
        code = run(["--config", str(config), *words])
        said, complaint = capsys.readouterr()
        assert code == 0, (words, complaint)
    found = json.loads(said[said.index("{\n") :])
    assert {each["name"] for each in found["vhosts"]} == {"/", "made"}
    assert found["queues"] == []
