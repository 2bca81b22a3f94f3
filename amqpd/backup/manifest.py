"""`backup.json`: what a backup holds, and the proof that it is complete.

What comes in: the facts of a finished copy; or the file of an older one. What goes out: the file, or the facts.
Rules: 1. It is written last, under another name first: a folder that has it is complete. 2. It names each file with
its size and its SHA-256, so that a changed byte is found before anything is restored. 3. Its last member is the
SHA-256 of its own bytes, with zeros in place of those digits; what earlier versions wrote has none. 4. A format that
this version does not know is refused; so is a member that it does not know, which may be a damaged name.
Not here: how files are copied (`copying.py`) and put back (`restore.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from amqpd.journal.sqlite.database import JOURNAL
from amqpd.storage.files import sync_directory

MANIFEST = "backup.json"
METADATA = "metadata.db"
FILES = (JOURNAL, METADATA)
FORMAT = 1
SUM, NO_SUM = "sha256", "0" * 64
PIECE_BYTES = 8 << 20
"""What is read and hashed at a time: each piece asks for the interpreter twice, and 8 MB take some 10 ms."""


class BackupError(Exception):
    """A backup or a restore cannot be done: one sentence with the way out."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The length of one file of a backup, and its SHA-256 in hexadecimal."""

    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a backup: the node that it is of, when it was made, and the files that belong to it."""

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
    has_checksum: bool = True
    """it has the SHA-256 of its own bytes; not written down"""

    def write(self, folder: Path) -> None:
        """Writes the manifest to stable storage. Raises OSError."""
        new = folder / f"{MANIFEST}.part"
        said = {name: value for name, value in asdict(self).items() if name != "has_checksum"}
        text = json.dumps(said | {SUM: NO_SUM}, indent=1).encode() + b"\n"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(_with_sum(text, _sum(text)))
            file.flush()
            os.fsync(file.fileno())
        new.rename(folder / MANIFEST)
        sync_directory(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup's folder. Raises BackupError."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BackupError(
            f"{folder} is no complete backup: it has no {MANIFEST}, which is written last; name another one"
        ) from None
    except OSError as error:
        raise BackupError(f"cannot read {path}: {error.strerror}; run this as a user that can") from None
    try:
        return parse(text, path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BackupError(f"{path} is damaged: name another backup") from None


def parse(text: bytes, path: Path) -> Manifest:
    """What the file has. Raises BackupError for another format; for what is damaged ValueError, KeyError, TypeError,
    AttributeError or RecursionError."""
    found = json.loads(text)
    has_checksum = SUM in found
    if has_checksum and _sum(text) != found[SUM]:
        raise ValueError(SUM)
    if found["format"] != FORMAT:
        raise BackupError(
            f"{path} is of format {found['format']}, and this amqpd knows format {FORMAT}: "
            f"restore it with amqpd {found.get('version', 'of the version that wrote it')}"
        )
    files = {name: FileFacts(int(each["nbytes"]), str(each["sha256"])) for name, each in found["files"].items()}
    if sorted(files) != sorted(FILES) or found.keys() - {SUM} != MEMBERS:
        raise ValueError("members")
    version, began, ended = (str(found[name]) for name in ("version", "began", "ended"))
    about = dict(found["journal"]), dict(found["metadata"])
    return Manifest(version, began, ended, *about, files, has_checksum=has_checksum)


MEMBERS = {each.name for each in fields(Manifest)} - {"has_checksum"}


def _sum(text: bytes) -> str:
    """Of the file's bytes, without its own. Raises ValueError."""
    return hashlib.sha256(_with_sum(text, NO_SUM)).hexdigest()


def _with_sum(text: bytes, digits: str) -> bytes:
    """The digits in their place, which is the end of the file. Raises ValueError."""
    end = b'"\n}\n'
    at = len(text) - len(end) - len(NO_SUM)
    if at < 0 or not text.endswith(end):
        raise ValueError(SUM)
    return text[:at] + digits.encode() + end


def digest(path: Path, tell: Callable[[int], None]) -> str:
    """The SHA-256 of a file, in hexadecimal digits. `tell` is called with the bytes of each piece; what it raises
    ends the work. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            found.update(piece)
            tell(len(piece))
    return found.hexdigest()
