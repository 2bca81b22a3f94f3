"""The files of damaged rows that an operator set aside, in the data directory's `quarantine`.

What comes in: the bytes of a row, and what is known of it. What goes out: two files, `NAME.row` with the bytes as
they were read and `NAME.json`.
Rules: 1. Both are on stable storage, and so are their names, when the call returns. 2. Nothing that is there is
overwritten: another file of the same row gets a number. 3. They are the operator's from then on; the broker neither
reads nor removes them.
Not here: when a row is set aside (`damaged_rows.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amqpd.storage.files import sync_directory

FOLDER = "quarantine"


def keep_row(data_dir: Path, name: str, data: bytes, facts: Mapping[str, Any]) -> Path:
    """Where the bytes are now. Raises OSError, and leaves nothing behind then."""
    folder = data_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    text = json.dumps({**facts, "sha256": hashlib.sha256(data).hexdigest()}, indent=2).encode() + b"\n"
    file = _unused(folder, name)
    about = file.with_suffix(".json")
    try:
        _write(file, data)
        _write(about, text)
        for each in (folder, data_dir):
            sync_directory(each)
    except OSError:
        file.unlink(missing_ok=True)
        about.unlink(missing_ok=True)
        raise
    return file


def _unused(folder: Path, name: str) -> Path:
    file, number = folder / f"{name}.row", 1
    while file.exists() or file.with_suffix(".json").exists():
        number += 1
        file = folder / f"{name}-{number}.row"
    return file


def _write(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(descriptor)
