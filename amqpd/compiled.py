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
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

VARIABLE = "AMQPD_KERNEL"
PACKAGE = "amqpd._compiled"
MANIFEST = "manifest.json"
# Where messages go, from the socket to the consumer: compiled by mypyc as they are, whole packages of them ...
PACKAGES = ("flow", "message", "node", "publishing", "queues", "session", "wire")
# ... and, of packages that mostly are beside the way, these modules.
MODULES = (
    "amqpd.audit.book",
    "amqpd.audit.party",
    "amqpd.audit.publication",
    "amqpd.audit.recorder",
    "amqpd.audit.sample",
    "amqpd.audit.sink",
    "amqpd.audit.spool",
    "amqpd.channels",
    "amqpd.connection",
    "amqpd.exchanges.cache_memory",
    "amqpd.journal.buffer",
    "amqpd.journal.commit_timing",
    "amqpd.journal.pending_row",
    "amqpd.journal.led_sources",
    "amqpd.journal.lane",
    "amqpd.journal.numbers",
    "amqpd.journal.storing",
    "amqpd.journal.transaction",
    "amqpd.journal.unwritten",
    "amqpd.journal.withheld",
    "amqpd.journal.sqlite.checksums",
    "amqpd.journal.sqlite.statement_parameters",
    "amqpd.journal.sqlite.queue_marks",
    "amqpd.process.clock",
    "amqpd.pump",
    "amqpd.storage.mark",
    "amqpd.transport.acceptor",
    "amqpd.transport.link",
    "amqpd.transport.waiting_links",
    "amqpd.transport.readiness",
    "amqpd.vocabulary.client",
)
# What of these packages is not, by the reason.
EXCLUDED = {
    "its classes inherit from int, float and str, which mypyc cannot": ("wire.fieldtypes", "wire.fieldwriter"),
    "its class inherits from one that is not compiled": ("node.led_queue",),
    "it runs once for a declaration, a connection, a fault or an operator's question": (
        "flow.client_counters flow.disk_space flow.leader_moves flow.quotas flow.unfinished",
        "node.orphans node.quarantine node.connection_rates node.totals",
        "publishing.histories publishing.history_replay publishing.unroutable",
        "queues.argument_values queues.arguments queues.browsing queues.contents queues.damage queues.settings",
        "session.delivery_ages session.handshake session.holds session.liveness",
        "wire.json_values wire.values",
    ),
    "not tried one by one: with all modules of these packages compiled, the interpreter ends at import": (
        "message.claims message.delays message.propertylist message.rewriting",
        "node.wakes session.services",
        "publishing.dead_lettering publishing.replies publishing.transaction",
        "queues.deadletters queues.host queues.templates",
    ),
}
_KERNEL_PARTS = ("batches.pxi", "deliveries.pxi", "keys.pxi", "octets.pxd", "screening.pxi")
_HERE = Path(__file__).parent
COMPILED = tuple(
    sorted(
        {
            *MODULES,
            *(
                f"amqpd.{package}.{file.stem}"
                for package in PACKAGES
                for file in (_HERE / package).glob("*.py")
                if file.stem != "__init__"
            ),
        }
        - {f"amqpd.{name}" for names in EXCLUDED.values() for name in " ".join(names).split()}
    )
)
_FOLDER = _HERE / "_compiled"
# Where there is no Makefile, that is what compiles.
_REMEDY = "'make build' does it" if (_HERE.parent / "setup.py").exists() else "to install amqpd again does it"


class KernelError(ImportError):
    """An error: AMQPD_KERNEL names no kernel, or one that is not there."""


class _Finder(MetaPathFinder):
    """Finds the compiled twin of a module, and the library that mypyc's modules share."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not (fullname.startswith("amqpd.") or fullname == "amqpd_modules__mypyc"):
            return None
        file = _FOLDER.joinpath(*fullname.removeprefix("amqpd.").split(".")).with_suffix(EXTENSION_SUFFIXES[0])
        return spec_from_file_location(fullname, file) if file.exists() else None


def sources() -> dict[str, str]:
    """Digests of what is compiled, by the file's name inside the package."""
    kernel = [f"amqpd/kernel/{file}" for file in ("compiled.pyx", *_KERNEL_PARTS)]
    files = [*(f"{module.replace('.', '/')}.py" for module in COMPILED), *kernel]
    return {file: hashlib.sha256(_HERE.parent.joinpath(file).read_bytes()).hexdigest() for file in files}


def write_manifest(folder: Path, made_from: dict[str, str]) -> None:
    """Say what the compiled files in `folder` were made from: `sources` as they were before. For the build."""
    (folder / MANIFEST).write_text(json.dumps({"sources": made_from}, indent=1) + "\n")


def unusable(folder: Path = _FOLDER) -> str:
    """Why the compiled parts in the folder cannot be used; empty when they can."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return f"nothing is compiled: {_REMEDY} where there is a C compiler"
    if not (folder / "kernel" / f"compiled{EXTENSION_SUFFIXES[0]}").exists():
        return f"what is compiled is for another Python: {_REMEDY} for this one"
    if manifest["sources"] != sources():
        return f"what is compiled is older than its sources: {_REMEDY} again"
    return ""


def choose(wanted: str, folder: Path = _FOLDER) -> tuple[str, str]:
    """What to run: "cython" or "python", and why it is not the former. `wanted` is AMQPD_KERNEL's value. Raises
    KernelError when what is demanded is not there, or is no kernel."""
    if wanted not in ("", "python", "cython"):
        raise KernelError(f"{VARIABLE} is '{wanted}', and kernels are python and cython: correct or unset it")
    if wanted == "python":
        return "python", f"{VARIABLE} is python"
    reason = unusable(folder)
    if reason and wanted:
        raise KernelError(f"{VARIABLE} is cython, but {reason}")
    return "python" if reason else "cython", reason


def install() -> tuple[str, str]:
    """Choose, and from now on import what was chosen. The answer is that of `choose`. Raises KernelError."""
    chosen = choose(os.environ.get(VARIABLE, "").strip().lower())
    if chosen[0] == "cython":
        sys.meta_path.insert(0, _Finder())
    return chosen
