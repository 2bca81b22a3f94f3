"""A start that is refused after both files were opened leaves the metadata as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from amqpd import broker
from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.journal.records import JournalDamaged
from tests.topology.damage import NAME, files_of, made, put


@pytest.mark.trio
async def test_damage_of_the_journal_that_is_found_late_changes_no_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, made().live)

    async def damaged(_: broker.Broker) -> None:
        raise JournalDamaged("the journal is damaged")

    monkeypatch.setattr(broker.Broker, "recover", damaged)
    settings = Settings(data_dir=tmp_path, bind=("127.0.0.1",), port=0)
    with pytest.raises(StartupError, match="the journal is damaged"):
        await broker.serve(settings, trio.Event(), accept_loss=True)
    after = files_of(path)
    for name in (NAME, f"{NAME}-wal", "metadata.mark"):
        assert after[name] == made().live[name], name
