"""`process/opening.py`: what a start with --accept-loss changes of a node's data directories.

What is verified: a node that goes on with less than it had is no longer the one whose disk others count on; one that
lost nothing still is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from amqpd.config import Settings
from amqpd.datadir.disks.opening import open_disks
from amqpd.journal.sqlite.schema import GENERATION
from amqpd.process.opening import open_node


def generation_after(paths: list[Path], *, accept_loss: bool) -> str:
    """A start, up to its first transaction."""

    async def start() -> str:
        settings = Settings(data_dir=paths[0]) if len(paths) == 1 else Settings(data_dirs=tuple(paths))
        async with open_node(settings, accept_loss=accept_loss) as opened:
            await trio.to_thread.run_sync(opened.pair.disk.recover)
            await opened.pair.begin()
            return opened.pair.disk.names.get(GENERATION, "")

    return trio.run(start)


@pytest.mark.parametrize("count", [1, 2])
def test_a_node_that_goes_on_with_less_is_another_one(tmp_path: Path, count: int) -> None:
    paths = [tmp_path / name for name in "abcde"]
    disks = open_disks(paths, accept_loss=False)
    disks.disk.recover()
    disks.disk.set_names(**{GENERATION: "7"})
    disks.disk.close()
    disks.close()
    assert generation_after(paths, accept_loss=True) == "7", "nothing is lost"
    assert generation_after(paths[:count], accept_loss=True) == ""
