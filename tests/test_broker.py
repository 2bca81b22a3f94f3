"""What a broker hands on of its settings, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from amqpd import broker
from amqpd.config import Settings
from amqpd.datadir.opening import Pair
from amqpd.errors import StartupError
from amqpd.process import opening
from amqpd.process.signals import Stop


def test_the_journal_leaves_free_what_ends_the_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or an idle broker would raise it by making its log longer."""
    seen: list[int] = []

    async def open_pair(directory: Path, *, accept_loss: bool, keep_free_bytes: int, **_: object) -> Pair:
        seen.append(keep_free_bytes)
        raise StartupError("far enough")

    monkeypatch.setattr(opening, "open_pair", open_pair)
    settings = Settings(data_dir=tmp_path, bind=("127.0.0.1",), port=0, disk_free_bytes_min=4_000_000)
    with pytest.raises(StartupError, match="far enough"):
        trio.run(broker.serve, settings, Stop(0))
    assert seen == [5_000_000]
