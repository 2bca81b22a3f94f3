"""`amqpd audit show` reads the files of the log, and says which it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from amqpd.audit.files.parquet import convert
from amqpd.audit.spool import SpoolBuffer
from amqpd.commands.audit import audit


@pytest.mark.parametrize("damage", ["flip", "truncate", "zero"])
def test_a_damaged_file_is_named_and_the_others_are_shown(tmp_path: Path, damage: str) -> None:
    events, files = tmp_path / "audit" / "events", []
    events.mkdir(parents=True)
    for number, word in enumerate(("lost", "left")):
        buffer = SpoolBuffer()
        buffer.act({"event": "bound", "time": 1_795_348_800_000_000, "object": word})
        spool = tmp_path / f"n-1-{number}.spool"
        spool.write_bytes(buffer.take())
        files.append(convert(spool, events))
    assert files[0]
    data = files[0].read_bytes()
    at = data.index(b"lost")
    damaged = {"flip": data[:at] + b"host" + data[at + 4 :], "truncate": data[:100], "zero": bytes(len(data))}
    files[0].write_bytes(damaged[damage])
    shown = CliRunner().invoke(audit, ["show", "--data-dir", str(tmp_path)])
    assert shown.exception is None, shown.output
    assert "left" in shown.stdout
    assert "lost" not in shown.stdout
    assert "host" not in shown.stdout
    assert f"{files[0]} is damaged, its rows are left out" in shown.stderr
