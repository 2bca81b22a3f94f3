"""The data directory vanishes, or its files are replaced, under a broker that runs: it stops with one sentence and
leaves alone what is there now."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pamqp import commands

from tests.harness.slow import slow

from ..clients.broker_process import BrokerProcess
from ..clients.wire import Wire, publish_bytes

MakeBroker = Callable[..., BrokerProcess]
STOPS_WITHIN_S = 15

pytestmark = pytest.mark.usefixtures("only_amqpd")


def fill(broker: BrokerProcess) -> None:
    """Some durable messages, confirmed."""
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue="q", durable=True), channel=1)
        wire.call(commands.Confirm.Select(), channel=1)
        wire.send_bytes(publish_bytes(1, "", "q", b"x" * 1000, commands.Basic.Properties(delivery_mode=2)))
        assert isinstance(wire.read_method()[1], commands.Basic.Ack)
        wire.close()


def below(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def stops_with(broker: BrokerProcess, sentence: str) -> None:
    assert broker.wait(STOPS_WITHIN_S) == 70, broker.log[-3000:]
    assert sentence in broker.log
    last = broker.log.splitlines()[-1]
    assert 'event="node stopped"' in last
    assert "Traceback" not in broker.log
    assert broker.log.count("level=critical") == 1
    assert "level=error" not in broker.log
    assert "failed beside it" not in broker.log


@pytest.mark.parametrize("told_to_stop", [False, slow(True)])
def test_a_directory_that_is_removed_is_not_made_again(make_broker: MakeBroker, told_to_stop: bool) -> None:
    broker = make_broker()
    broker.start()
    fill(broker)
    shutil.rmtree(broker.data_dir)
    if told_to_stop:
        broker.terminate()
    stops_with(broker, f"the data directory {broker.data_dir} is gone")
    assert not broker.data_dir.exists()


def test_a_backup_that_is_put_in_place_of_the_files_is_left_as_it_is(make_broker: MakeBroker, tmp_path: Path) -> None:
    """With its own logs, which a broker that closes its database would remove by their names."""
    broker = make_broker()
    broker.start()
    fill(broker)
    backup = shutil.copytree(broker.data_dir, tmp_path / "backup", ignore=shutil.ignore_patterns("control.sock"))
    before = {path.replace(str(backup), str(broker.data_dir)): data for path, data in below(backup).items()}
    broker.data_dir.rename(tmp_path / "away")
    backup.rename(broker.data_dir)
    stops_with(broker, f"the data directory {broker.data_dir} is not the directory that was opened")
    assert below(broker.data_dir) == before
    broker.start()


def test_a_log_that_is_removed_is_noticed(make_broker: MakeBroker) -> None:
    """What is confirmed from then on would be in a file that no start finds."""
    broker = make_broker()
    broker.start()
    fill(broker)
    wal = broker.data_dir / "journal.db-wal"
    wal.unlink()
    stops_with(broker, f"{wal} was removed while the node ran")
    assert not wal.exists()


def test_a_volume_that_is_taken_away(make_broker: MakeBroker, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "data").mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "none", str(volume / "data")]
    if os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs root, to mount a file system")
    broker = make_broker(volume / "data")
    broker.start()
    fill(broker)
    subprocess.run(["umount", "--lazy", str(volume / "data")], check=True)
    stops_with(broker, f"the data directory {volume / 'data'} is not the directory that was opened")
    assert list((volume / "data").iterdir()) == []
