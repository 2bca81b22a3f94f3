"""The services that the pure packages ask for: the metadata store, log-ins, chance, the log, reads.

What comes in: nothing. What goes out: `Services`, `Read`.
Rules: none of it blocks; time is not asked for, it is told (`Node.now_ms`).
Not here: the answers (`process/services.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from amqpd.vocabulary.client import LoginClient
from amqpd.vocabulary.records import Change, Key

if TYPE_CHECKING:
    from amqpd.queues.dispatchable import Paged
    from amqpd.queues.messages import RowsWanted

Resume = Callable[[bool], None]


class Read(NamedTuple):
    """A read of rows of the journal that a queue has asked for."""

    queue: Paged
    request: RowsWanted


class Services(Protocol):
    """The services that the shell gives to the pure packages. None of them blocks; only log-ins may be answered
    before it returns."""

    @property
    def metadata_applied(self) -> int:
        """The revision of the metadata up to which everything is applied."""
        ...

    @property
    def metadata_told(self) -> int:
        """The revision of the newest change to the metadata that is applied: other nodes are told of that one, too,
        unlike of one that this node has read the metadata at."""
        ...

    def submit(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), owner: str = ""
    ) -> None:
        """Make the changes; resume(True) when they are applied, resume(False) when a record to create exists, or one
        of the keys in `requires` does not. `owner`: the id of the connection that asks; they take turns."""
        ...

    def authenticate(self, connection: LoginClient, mechanism: str, response: bytes) -> None:
        """Ends in `connection.authenticated` or `connection.refused`, maybe before it returns."""
        ...

    def left_unauthenticated(self, connection: LoginClient) -> None:
        """The connection has ended without a user. A log-in that is under way need not come to its end."""
        ...

    def token(self) -> str:
        """22 random characters of A-Z a-z 0-9 - _."""
        ...

    def queue_id(self) -> int:
        """A random number of 63 bits."""
        ...

    def chance(self) -> float:
        """A random number from 0.0 to below 1.0."""
        ...

    def log(self, event: str, fields: Mapping[str, Any]) -> None: ...

    def bug(self, error: Exception) -> None:
        """An exception that should not have been: logged with its traceback; tests fail on it."""
        ...
