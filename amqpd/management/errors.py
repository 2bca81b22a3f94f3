"""Why an operator's request was not carried out: what every use case raises, and every face turns into its own.

What comes in: one sentence, in lower case and without a full stop, which names what is wrong and, where there is one,
the way out. What goes out: an exception whose class says what kind of refusal it is.
Rules: 1. The kinds are few, because a face has few answers: the command line has the sentence and exit code 1, the
control socket the sentence and `kind`, an HTTP API a status. 2. `kind` is part of what the control socket answers:
`of_kind` makes the same exception of it on the other side. 3. What is none of these is a bug of ours.
Not here: what ends a node or keeps it from starting (`amqpd/errors.py`), what a client of AMQP is told
(`asking.py` turns that into these).
"""

from __future__ import annotations


class ManagementError(Exception):
    """A request was refused, or could not be carried out, for a reason of no other kind."""

    kind = "failed"


class BadArgument(ManagementError):
    """The request itself makes no sense, whatever exists: it will never succeed."""

    kind = "bad_argument"


class NotFound(ManagementError):
    """The thing that the request is about does not exist."""

    kind = "not_found"


class AtAnotherNode(NotFound):
    """Another node has what the request is about; the sentence says where to go."""


class AlreadyExists(ManagementError):
    """The thing that was to be made exists, or exists with other properties."""

    kind = "already_exists"


class NotPermitted(ManagementError):
    """The permissions of the user do not allow the request."""

    kind = "refused"


class Conflict(ManagementError):
    """The state of what the request is about is in the way: in use, not empty, busy, changed meanwhile, a limit is
    reached. Later it may succeed."""

    kind = "conflict"


class Unavailable(ManagementError):
    """The component that has to do it is missing or unable to: no broker runs, a disk is full, a queue is out of
    service."""

    kind = "unavailable"


KINDS: dict[str, type[ManagementError]] = {
    each.kind: each
    for each in (ManagementError, BadArgument, NotFound, AlreadyExists, NotPermitted, Conflict, Unavailable)
}


def of_kind(kind: str, sentence: str) -> ManagementError:
    """The exception that was answered as `kind`; of a kind that is not known here, one of no kind."""
    return KINDS.get(kind, ManagementError)(sentence)
