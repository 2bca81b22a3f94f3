"""The two ways in which the whole broker fails, each as one sentence for the operator.

What comes in: a sentence that names what is wrong and the way out. What goes out: exceptions that the command
line prints (or logs) as that sentence, with the exit code that they carry; `find_failure` digs them out of
exception groups, `first_reason` and `disk_failure` what is to be said without one.
Rules: 1. `StartupError`: nothing was served yet, and nothing that existed was changed. 2. `NodeFailure`:
going on would break a promise (a failed fsync): the node stops, nothing is retried. 3. Other packages subclass
these; they never call `sys.exit`.
Not here: AMQP errors, which concern one channel or one connection (pamqp's exceptions, `connection.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

# sysexits(3) EX_SOFTWARE: "internal software error". Not 1 or 2, so that a service file can tell a broker
# that could not start (RestartPreventExitStatus=1 2: it will not get better by itself) from one that stopped
# to protect its data.
EXIT_NODE_FAILURE = 70
# sysexits(3) EX_TEMPFAIL: it is to be started again.
EXIT_NOT_YET = 75


class Failure(Exception):
    """Base of the two failures of a whole broker, StartupError and NodeFailure. `sentence` is complete, begins in
    lower case and needs no traceback beside it."""

    exit_code = EXIT_NODE_FAILURE

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class StartupError(Failure):
    """The broker (or a command) cannot start: port in use, locked or newer data directory, unreadable
    certificate."""

    exit_code = 1


class NotYet(StartupError):
    """The broker (or a command) cannot start now, and may at the next try: another program that it needs does not
    answer."""

    exit_code = EXIT_NOT_YET


class SettingsError(StartupError):
    """A setting is unknown or has an impossible value. Exit code 2, as click and most commands use it for
    wrong usage."""

    exit_code = 2


class NodeFailure(Failure):
    """The running node must stop: fsync failed, a checksum does not fit, an invariant is broken."""


class StorageFailure(Exception):
    """Base of what the journal and the metadata store raise when the node cannot go on. The text is one sentence."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however deep; an exception that is no group is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def reasons(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in it, however deep, in the order in which they came up: what one was raised from, or came up
    while it was handled, is before it. What came up when everything was closed never hides why it was closed."""
    seen: set[int] = set()

    def walk(each: BaseException) -> Iterator[BaseException]:
        if id(each) in seen:
            return
        seen.add(id(each))
        before = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if before is not None:
            yield from walk(before)
        if isinstance(each, BaseExceptionGroup):
            for inner in each.exceptions:
                yield from walk(inner)
        else:
            yield each

    yield from walk(error)


def find_failure(error: BaseException) -> Failure | None:
    """The failure to tell the operator about, or None when `error` holds none.

    A nursery reports everything that was going on when it broke. `NodeFailure` wins: it is the reason, what
    else came up beside it is a consequence; also if it came up at the end and stands above the reason."""
    failures: list[Failure] = [leaf for leaf in leaves(error) if isinstance(leaf, Failure)]
    failures.sort(key=lambda failure: not isinstance(failure, NodeFailure))
    failures += [each for each in reasons(error) if isinstance(each, NodeFailure)]
    return failures[0] if failures else None


def is_consequence(error: BaseException) -> bool:
    """It says that something else ended: a task that was cancelled, a stream that was closed."""
    return type(error).__module__.partition(".")[0] == "trio"


def first_reason(error: BaseException) -> BaseException:
    """Of an error without a failure in it: what came up first, and is no consequence of something else."""
    found = [leaf for leaf in leaves(error) if not is_consequence(leaf)]
    return next(reasons(found[0])) if found else error


def disk_failure(error: BaseException) -> str | None:
    """One sentence, if the system or SQLite says that a disk or file system failed: that is no bug of ours, wherever
    it was met. It is not damage either: what is on the disk may be right."""
    for each in (cause for leaf in leaves(error) for cause in _causes(leaf)):
        name = getattr(each, "sqlite_errorname", None) or ""
        if name.startswith(_SQLITE_DISK):
            return f"the disk failed: {each} ({name}); see what the system's log says of it, then start again"
        if isinstance(each, OSError) and each.errno in _DISK_ERRORS:
            where = f" of {each.filename}" if each.filename is not None else ""
            return f"the disk{where} failed: {each.strerror}; see what the system's log says of it, then start again"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


_SQLITE_DISK = ("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")
_DISK_ERRORS = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT}
)
