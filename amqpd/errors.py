"""The two ways in which the whole broker fails, each as one sentence for the operator.

What comes in: a sentence that names what is wrong and the way out. What goes out: exceptions that the command
line prints (or logs) as that sentence, with the exit code that they carry; `find_failure` digs them out of
exception groups.
Rules: 1. `StartupError`: nothing was served yet, and nothing that existed was changed. 2. `NodeFailure`:
going on would break a promise (a failed fsync): the node stops, nothing is retried. 3. Other rooms subclass
these; they never call `sys.exit`.
Not here: AMQP errors, which concern one channel or one connection (pamqp's exceptions, `connection.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

# sysexits(3) EX_SOFTWARE: "internal software error". Not 1 or 2, so that a service file can tell a broker
# that could not start (RestartPreventExitStatus=1 2: it will not get better by itself) from one that stopped
# to protect its data.
EXIT_NODE_FAILURE = 70


class Failure(Exception):
    """Base of both. `sentence` is complete, begins in lower case and needs no traceback beside it."""

    exit_code = EXIT_NODE_FAILURE

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class StartupError(Failure):
    """The broker (or a command) cannot start: port in use, locked or newer data directory, unreadable
    certificate."""

    exit_code = 1


class SettingsError(StartupError):
    """A setting is unknown or has an impossible value. Exit code 2, as click and most commands use it for
    wrong usage."""

    exit_code = 2


class NodeFailure(Failure):
    """The running node must stop: fsync failed, a checksum does not fit, an invariant is broken."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group, however deep; an exception that is no group is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def find_failure(error: BaseException) -> Failure | None:
    """The failure to tell the operator about, or None when `error` holds none.

    A nursery reports everything that was going on when it broke. `NodeFailure` wins: it is the reason, what
    else came up beside it is a consequence."""
    failures = [leaf for leaf in leaves(error) if isinstance(leaf, Failure)]
    failures.sort(key=lambda failure: not isinstance(failure, NodeFailure))
    return failures[0] if failures else None
