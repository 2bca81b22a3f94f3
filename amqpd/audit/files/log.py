"""The audit log of a running broker: its components wired together, from its first row to its last.

What comes in: settings, the data directory, the node. What goes out: a recorder and books for the node; tasks;
answers to the control socket.
Rules: 1. An incarnation begins with `started`, what was lost of the one before if anything was, and anchors; it ends
with anchors and `stopped`. 2. The incarnation's number is on disk before a client connects; on a full disk, before
any row of it.
3. Damaged files are set aside and said as a gap; only a folder that may not be written keeps a node from starting.
Not here: the components themselves.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio

from amqpd import __version__
from amqpd.audit.acts import NODE
from amqpd.audit.coverage.anchors import anchor
from amqpd.audit.coverage.counts import MinuteCounts
from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.epochs import Epochs
from amqpd.audit.files.damage import folder_in_place
from amqpd.audit.files.incarnations import next_incarnation, write_incarnation
from amqpd.audit.files.writer import NO_SPACE, AuditWriter
from amqpd.audit.kinds import ANCHOR_STOPPED
from amqpd.audit.recorder import Recorder
from amqpd.errors import StartupError
from amqpd.setting_tables import AuditSettings
from amqpd.vocabulary.audit_levels import parse_level

if TYPE_CHECKING:
    from amqpd.node.node import Node

COUNTS_S = 60.0

_log = structlog.get_logger("amqpd.audit")


class AuditLog:
    """The audit log of one incarnation of the broker: `begin` it when everything is recovered, `run` it, `end` it."""

    def __init__(
        self, data_dir: Path, settings: AuditSettings, clock_us: Callable[[], int], on_full: Callable[[bool], None]
    ) -> None:
        """Raises StartupError."""
        self._folder = data_dir / "audit"
        self._settings = settings
        places = (self._folder, self._folder / "spool", self._folder / "events")
        self._damages = [damage for each in places if (damage := folder_in_place(each)) is not None]
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            # Without space the log begins with a gap (`AuditWriter.begin`); the folder is made at the end of it.
            if error.errno not in NO_SPACE:
                raise StartupError(f"cannot make {self._folder}: {error.strerror}") from error
        self.incarnation = next_incarnation(self._folder)
        if self.incarnation.damage is not None:
            self._damages.append(self.incarnation.damage)
        self.recorder = Recorder(clock_us)
        self.recorder.incarnation = self.incarnation.number
        vhosts = {name: parse_level(text) for name, text in settings.vhosts.items()}
        epochs = Epochs(self.incarnation.number, self.incarnation.eras)
        self.coverage = Coverage(self.recorder, parse_level(settings.level), vhosts, epochs)
        self.counts = MinuteCounts(self.coverage)
        self._node: Node | None = None
        name = settings.node or socket.gethostname()
        self.writer = AuditWriter(
            self._folder,
            name,
            self.recorder,
            settings,
            self._keep_incarnation,
            self._tell_start,
            self._anchor_all,
            on_full,
        )

    def begin(self, node: Node, shared: bool = False) -> None:
        """Everything that was on disk is back in the node. `shared`: other nodes write into its metadata store, too.
        A full disk is no reason not to start: the log begins with a gap. Raises StartupError."""
        self._node = node
        if shared:
            node.acts.unasked = NODE
        self.counts.begin(node.audited())
        try:
            self.writer.begin()
        except OSError as error:
            raise StartupError(
                f"cannot write the audit log in {self._folder}: {error.strerror}; "
                "make it a folder that this user can write"
            ) from error

    def _keep_incarnation(self) -> None:
        write_incarnation(self._folder, self.incarnation.number, False, self.coverage.kept_eras)

    def _tell_start(self) -> None:
        recorder = self.recorder
        detail = {"version": __version__, "level": self._settings.level, "orderly": self.incarnation.orderly}
        recorder.act("started", {"detail": json.dumps(detail)})
        if not (self.incarnation.orderly or self.incarnation.same_boot):
            recorder.act(
                "gap", {"reason": "power", "detail": json.dumps({"incarnation": self.incarnation.number - 1})}
            )
        if self.writer.left_gap is not None:
            detail = {"incarnation": self.incarnation.number - 1, "from": self.writer.left_gap}
            recorder.act("gap", {"reason": "disk_full", "detail": json.dumps(detail)})
        for damage in self._damages:
            recorder.act("gap", {"reason": "damaged", "detail": json.dumps(damage)})

    async def run(self) -> None:
        """Keeps the audit log until it is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            while True:
                await trio.sleep(COUNTS_S)
                assert self._node is not None
                node = self._node
                for _ in self.counts.write_in_steps(node.audited(), list(node.connections.values())):
                    self.writer.sink.record()
                    await trio.lowlevel.checkpoint()
                    self.recorder.later()
                self.writer.sink.record()

    async def end(self, flushed: bool, seconds: float = math.inf) -> None:
        """The node does nothing any more: what would be recorded from now on has no place. `flushed`: the journal has
        all that the log tells of; else an end of a message may be undone, as by a kill. `seconds`: how long it may
        take; what it has no time for is left to the next start."""
        assert self._node is not None
        self.writer.hurry(seconds)
        # What is found damaged in the spool can still be told of.
        await self.writer.convert_finished()
        self.recorder.later()
        for _ in self.counts.write_in_steps(self._node.audited(), list(self._node.connections.values())):
            pass
        self.writer.sink.record()
        self._anchor_all(ANCHOR_STOPPED)
        self.recorder.act("stopped", {"detail": json.dumps({"flushed": flushed})})
        try:
            await self.writer.aclose()
            write_incarnation(self._folder, self.incarnation.number, not self.writer.full, self.coverage.kept_eras)
        except OSError as error:
            _log.error("the end of the audit log's incarnation could not be written", reason=str(error))

    @property
    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """For the control server."""
        return {"audit status": self._status, "audit flush": self._flush}

    async def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        assert self._node is not None
        recorded = sum(queue.recorded_share > 0 for queue in self._node.audited())
        return {**self.writer.status(), "level": self._settings.level, "queues_recorded": recorded}

    async def _flush(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"waiting": await self.writer.flush(), "folder": str(self.writer.events)}

    def _anchor_all(self, kind: int) -> None:
        assert self._node is not None
        for queue in self._node.audited():
            anchor(self.recorder, queue, kind)
