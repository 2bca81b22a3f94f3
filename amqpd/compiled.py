"""Which parts of the broker run compiled, and from where they are imported.

What comes in: the environment variable AMQPD_KERNEL (`python`, `cython`, or nothing), `_compiled/`. What goes out: an
import finder in front of Python's own; the kernel's name and the reason for it, for the log and `amqpd --version`.
Rules: 1. The compiled parts come from the same sources as the plain ones (the kernel: from its twin), all of them or
none. 2. What was compiled from other sources than those beside it is not used. 3. `python` is always possible;
`cython` is a demand.
Not here: compiling (`setup.py`).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = "amqpd._compiled"
MANIFEST = "manifest.json"
# Where messages go through, from the socket to the consumer; compiled by mypyc as they are.
ROOMS = (
    "amqpd.channels",
    "amqpd.confirms",
    "amqpd.congestion",
    "amqpd.connection",
    "amqpd.consumers",
    "amqpd.content",
    "amqpd.intake",
    "amqpd.journal.buffer",
    "amqpd.journal.intake",
    "amqpd.link",
    "amqpd.node",
    "amqpd.properties",
    "amqpd.publishing",
    "amqpd.pump",
    "amqpd.queues.arrivals",
    "amqpd.queues.backlog",
    "amqpd.queues.deadlines",
    "amqpd.queues.delayed",
    "amqpd.queues.expiry",
    "amqpd.queues.facts",
    "amqpd.queues.levels",
    "amqpd.queues.mortality",
    "amqpd.queues.queue",
    "amqpd.queues.returned",
    "amqpd.queues.segment",
    "amqpd.queues.segments",
    "amqpd.queues.timetable",
    "amqpd.queues.turns",
    "amqpd.routing",
    "amqpd.unacked",
    "amqpd.wire",
)
_KERNEL = "amqpd.kernel.compiled"
_HERE = Path(__file__).parent
_FOLDER = _HERE / "_compiled"


class CompiledMissing(ImportError):
    """AMQPD_KERNEL=cython, and there is nothing compiled that could be used."""


class _Finder(MetaPathFinder):
    """Finds the compiled twin of a module, and the library that mypyc's modules share."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not (fullname.startswith("amqpd.") or fullname == "amqpd_rooms__mypyc"):
            return None
        file = _FOLDER.joinpath(*fullname.removeprefix("amqpd.").split(".")).with_suffix(EXTENSION_SUFFIXES[0])
        return spec_from_file_location(fullname, file) if file.exists() else None


def _sources() -> dict[str, str]:
    """Digests of what is compiled, by the file's name inside the package."""
    files = [*(f"{room.replace('.', '/')}.py" for room in ROOMS), "amqpd/kernel/compiled.pyx"]
    return {file: hashlib.sha256(_HERE.parent.joinpath(file).read_bytes()).hexdigest() for file in files}


def write_manifest(folder: Path) -> None:
    """Say what the compiled files in `folder` were made from. For the build."""
    (folder / MANIFEST).write_text(json.dumps({"sources": _sources()}, indent=1) + "\n")


def unusable() -> str:
    """Why the compiled parts cannot be used; empty when they can."""
    try:
        manifest = json.loads((_FOLDER / MANIFEST).read_bytes())
    except FileNotFoundError:
        return "nothing is compiled for this Python; 'make build' does it where there is a C compiler"
    if not (_FOLDER / "kernel" / f"compiled{EXTENSION_SUFFIXES[0]}").exists():
        return "what is compiled is for another Python; 'make build' does it for this one"
    if manifest["sources"] != _sources():
        return "what is compiled is older than its sources; 'make build' does it anew"
    return ""


def choose(wanted: str) -> tuple[str, str]:
    """The name of the kernel that runs, and why it is not the compiled one; installs the finder when it is. Raises
    CompiledMissing when it must be and cannot, ValueError for a name that is none."""
    if wanted not in ("", "python", "cython"):
        raise ValueError(f"AMQPD_KERNEL is '{wanted}': it can be 'python' or 'cython', or not be set")
    if wanted == "python":
        return "python", "AMQPD_KERNEL=python"
    reason = unusable()
    if not reason:
        sys.meta_path.insert(0, _Finder())
        return "cython", ""
    if wanted == "cython":
        raise CompiledMissing(f"AMQPD_KERNEL is 'cython', but {reason}")
    return "python", reason
