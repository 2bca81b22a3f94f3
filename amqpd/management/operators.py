"""Who asks for something: an operator, as a use case on a running node sees them.

What comes in: what a face knows of the one who asks. What goes out: a value for the log, and whose permissions count.
Not here: how somebody proves who they are: the control socket takes every process that may open it, an HTTP API asks
for a password.
"""

from __future__ import annotations

from dataclasses import dataclass

from amqpd.vocabulary.caller import COMMAND_LINE, Caller


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator who asks for something. `user` is the user of the broker whose permissions hold for what is
    done; without one, all is allowed: that is somebody who may write the broker's files, and could do anything
    with them. `uid` is that process's user id, where the system says it."""

    user: str | None = None
    uid: int | None = None

    @property
    def caller(self) -> Caller:
        """For the audit log."""
        return COMMAND_LINE if self.user is None else Caller(self.user)

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields of a line of the log: `user`, and `uid` where the system says it."""
        known = {"uid": self.uid, "user": self.user}
        return {name: value for name, value in known.items() if value is not None}
