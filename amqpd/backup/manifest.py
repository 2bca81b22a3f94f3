"""`backup.json`: what a backup holds, and the proof that it is complete.

What comes in: the facts of a finished copy; or the file of an older one. What goes out: the file, or the facts.
Rules: 1. It is written last, under another name first: a folder that has it is complete. 2. It names each file with
its size and its SHA-256, so that a changed byte is found before anything is restored. 3. A format that this version
does not know is refused.
Not here: how files are copied (`copying.py`) and put back (`restore.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amqpd.journal.sqlite.database import JOURNAL
from amqpd.storage.files import sync_directory

MANIFEST = "backup.json"
METADATA = "metadata.db"
FILES = (JOURNAL, METADATA)
FORMAT = 1
PIECE_BYTES = 8 << 20
"""What is read and hashed at a time: each piece asks for the interpreter twice, and 8 MB take some 10 ms."""


class BackupError(Exception):
    """A backup or a restore cannot be done: one sentence with the way out."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Of one file: how long it is, and its SHA-256 in hexadecimal."""

    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup is of, when it was made, and which files belong to it."""

    version: str
    """of the amqpd that wrote it"""
    began: str
    """UTC, ISO 8601: every confirm that was sent before is of a message that is in the backup"""
    ended: str
    journal: Mapping[str, Any]
    """`format`, `identity`, `index` of the last transaction in it"""
    metadata: Mapping[str, Any]
    """`format`, `identity`, `revision`"""
    files: Mapping[str, FileFacts]
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        new = folder / f"{MANIFEST}.part"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(asdict(self), file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.rename(folder / MANIFEST)
        sync_directory(folder)


def read_manifest(folder: Path) -> Manifest:
    """Raises BackupError."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_bytes())
        if found["format"] != FORMAT:
            raise BackupError(
                f"{path} is of format {found['format']}, and this amqpd knows format {FORMAT}: "
                f"restore it with amqpd {found.get('version', 'of the version that wrote it')}"
            )
        files = {name: FileFacts(int(each["nbytes"]), str(each["sha256"])) for name, each in found["files"].items()}
        if sorted(files) != sorted(FILES):
            raise ValueError("files")
        version, began, ended = (str(found[name]) for name in ("version", "began", "ended"))
        return Manifest(version, began, ended, dict(found["journal"]), dict(found["metadata"]), files)
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(
            f"{folder} is no complete backup: it has no {MANIFEST}, which is written last; name another one"
        ) from None
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror}; run this as a user that can") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BackupError(f"{path} is damaged: name another backup") from None


def digest(path: Path, tell: Callable[[int], None]) -> str:
    """The SHA-256 of a file, in hexadecimal digits. `tell` is called with the bytes of each piece; what it raises
    ends the work. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            found.update(piece)
            tell(len(piece))
    return found.hexdigest()
