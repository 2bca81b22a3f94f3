"""`amqpd backup` of a running broker: the broker copies, because its journal can be opened by its own process only.

What comes in: the command of the control socket. What goes out: how far it is, twice a second, and at the end the
manifest; the log of who did it.
Rules: 1. One backup at a time: each keeps the journal's write-ahead log from being emptied. 2. It ends with a
sentence when the disk alarm comes on, when the broker stops, or when the client that asked has left: nothing that
looks like a backup is left behind. 3. The work is in a thread that looks up at every step, so none of these waits for
long. Only the check of the finished copy does not look up: the end of the broker leaves it alone.
Not here: the work (`job.py`), how a command shows it (`commands/backup.py`).
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
import trio

from amqpd.backup.job import LOG_BYTES_MAX, Job
from amqpd.backup.manifest import METADATA, BackupError, Manifest
from amqpd.backup.progress import Progress
from amqpd.faults import ENDS_NODE
from amqpd.management.control.answers import Stream, caller
from amqpd.management.errors import BadArgument, Conflict, ManagementError, Unavailable
from amqpd.node.node import Node

LOOK_S = 0.1
"""How often it is looked whether the backup has to end: what an unthrottled copy writes meanwhile is far below the
free space at which the disk alarm comes on."""
TELL_LOOKS = 5

log = structlog.get_logger(component="backup")


class Backups:
    """The backups that a running broker makes: `streams` are for the control server; `run` must be running."""

    def __init__(
        self,
        node: Node,
        data_dir: Callable[[], Path],
        keep_free_bytes: int,
        sharing_log: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`data_dir`: one that has everything. `sharing_log`: entered while a backup reads the journal and copies its
        log (`Checkpoints.sharing`)."""
        self._node = node
        self._data_dir = data_dir
        self._keep_free_bytes = keep_free_bytes
        self._sharing_log = sharing_log
        self._nursery: trio.Nursery | None = None
        self._task: _Task | None = None

    @property
    def streams(self) -> Mapping[str, Stream]:
        return {"backup": self.backup}

    async def run(self) -> None:
        """Until cancelled; a backup that is under way is ended."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
                if self._task is not None:
                    self._task.progress.stop("the broker was stopped: the backup was given up")

    async def backup(self, arguments: dict[str, Any]) -> AsyncGenerator[list[dict[str, Any]], None]:
        """How far it is, and at the end a row with `backup`, what the manifest says."""
        task = self._begin(arguments)
        looks = 0
        try:
            while not task.ended.is_set():
                with trio.move_on_after(LOOK_S):
                    await task.ended.wait()
                self._look(task)
                if looks % TELL_LOOKS == 0:
                    yield [task.progress.row]
                looks += 1
        finally:
            task.progress.stop("the client that asked for the backup has left")
        if task.manifest is None:
            raise ManagementError(task.failure)
        yield [task.progress.row, {"backup": asdict(task.manifest)}]

    def _begin(self, arguments: dict[str, Any]) -> _Task:
        target = arguments.get("target")
        if not isinstance(target, str) or not Path(target).is_absolute():
            raise BadArgument("target must be the absolute path of a new folder")
        if self._task is not None:
            raise Conflict(f"a backup to {self._task.target} is under way: wait until it has ended")
        if "disk" in self._node.alarms.kinds:
            raise Unavailable("the disk alarm is on: no backup is made until it is off")
        if self._nursery is None or self._node.draining:
            raise Unavailable("the broker is stopping: make the backup when it has stopped")
        data_dir = self._data_dir()
        if not (data_dir / METADATA).exists():
            raise Unavailable(
                f"the definitions are in the store of cluster_store and not in {data_dir}: a backup of both "
                "cannot be made; keep snapshots of etcd"
            )
        rate = _number(arguments, "rate_bytes_s", None)
        log_bytes_max = _number(arguments, "log_bytes_max", LOG_BYTES_MAX)
        task = self._task = _Task(Path(target), Progress(rate), caller().uid)
        job = Job(
            data_dir,
            task.target,
            task.progress,
            running=True,
            keep_free_bytes=self._keep_free_bytes,
            log_bytes_max=int(log_bytes_max or LOG_BYTES_MAX),
        )
        self._nursery.start_soon(self._work, task, job)
        return task

    def _look(self, task: _Task) -> None:
        """Whether something happened that the backup must not go on beside."""
        if "disk" in self._node.alarms.kinds:
            task.progress.stop("the disk alarm came on: the backup was given up; make space, and begin it again")
        elif self._node.draining:
            task.progress.stop("the broker was stopped: the backup was given up")

    async def _work(self, task: _Task, job: Job) -> None:
        log.info("backup begun", target=str(task.target), uid=task.uid)
        began = trio.current_time()
        try:
            # The default threads: the pump does not spin while one of them works (`Broker._alone`).
            with self._sharing_log():
                await trio.to_thread.run_sync(job.copy)
            task.manifest = await trio.to_thread.run_sync(job.finish, abandon_on_cancel=True)
        except trio.Cancelled:
            job.remove()
            raise
        except BackupError as error:
            task.failure = str(error)
            log.warning("backup failed", target=str(task.target), reason=task.failure)
        except ENDS_NODE:
            raise
        except Exception:
            log.exception("backup failed", target=str(task.target))
        else:
            log.info(
                "backup complete",
                target=str(task.target),
                bytes=sum(each.nbytes for each in task.manifest.files.values()),
                seconds=round(trio.current_time() - began, 1),
                log_grew_bytes=task.progress.held_log,
            )
        finally:
            self._task = None
            task.ended.set()


class _Task:
    def __init__(self, target: Path, progress: Progress, uid: int | None) -> None:
        self.target = target
        self.progress = progress
        self.uid = uid
        self.ended = trio.Event()
        self.manifest: Manifest | None = None
        self.failure = "the backup failed inside the broker: see its log"


def _number(arguments: dict[str, Any], name: str, default: float | None) -> float | None:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadArgument(f"{name} must be a number above 0")
    return float(value)
