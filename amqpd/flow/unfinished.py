"""What clients have begun and not finished: transactions, messages that have not come whole, gaps between deliveries
that are acknowledged.

What comes in: bytes that a channel holds, and that it has given back. What goes out: a refusal when all together are
too many.
Rules: 1. Nothing but the client can finish it, and a client that an alarm blocks cannot: so all of it together stays
so far below the memory alarm that the alarm can end whatever clients do (`Limits.unfinished_bytes_max`). 2. Above the
bound, channels of the user that holds most are closed, those of its largest connection first: 406 for a transaction
or for gaps, 311 CONTENT_TOO_LARGE for a message. So a user that holds little is not refused because of one that holds
much. 3. What a channel holds is given back when it ends, however it ends.
Not here: how large one transaction may be (`publishing/transaction.py`), or one message (`publishing/publish.py`).

Source: AMQP 0-9-1 section 1.2 for the reply codes.
"""

from __future__ import annotations

from collections import Counter

from pamqp.exceptions import AMQPContentTooLarge, AMQPPreconditionFailed, AMQPSoftError

from amqpd.vocabulary.client import Client, UnfinishedChannel, UnfinishedKind
from amqpd.vocabulary.limits import Limits

# How much is freed at once: the search for the largest holder looks at all of them, so it must be rare.
FREED_PART = 8


class UnfinishedBytes:
    """The bytes of what is begun and not finished, of all clients together."""

    def __init__(self, limits: Limits) -> None:
        self._bytes_max = limits.unfinished_bytes_max
        self.nbytes = 0
        self._connections: dict[Client, None] = {}
        """those that hold anything"""

    def charge(self, channel: UnfinishedChannel, nbytes: int) -> None:
        """The channel holds `nbytes` more. Raises AMQPPreconditionFailed or AMQPContentTooLarge when it is the
        one to be refused."""
        connection = channel.client
        channel.unfinished_bytes += nbytes
        connection.unfinished_bytes += nbytes
        self.nbytes += nbytes
        self._connections[connection] = None
        if self.nbytes > self._bytes_max:
            self._make_space(channel)

    def release(self, channel: UnfinishedChannel, nbytes: int) -> None:
        """The channel gave back `nbytes` of its bytes."""
        connection = channel.client
        channel.unfinished_bytes -= nbytes
        connection.unfinished_bytes -= nbytes
        self.nbytes -= nbytes
        if not connection.unfinished_bytes:
            self._connections.pop(connection, None)

    def _make_space(self, charged: UnfinishedChannel) -> None:
        wanted = self._bytes_max - self._bytes_max // FREED_PART
        by_user: Counter[str] = Counter()
        for connection in self._connections:
            by_user[connection.user] += connection.unfinished_bytes
        while self.nbytes > wanted and by_user:
            user = by_user.most_common(1)[0][0]
            del by_user[user]
            of_user = [connection for connection in self._connections if connection.user == user]
            for connection in sorted(of_user, key=_bytes_of, reverse=True):
                if self.nbytes > wanted:
                    self._end(connection, charged)

    def _end(self, connection: Client, charged: UnfinishedChannel) -> None:
        """Close the connection's channels that hold anything. One that waits for an answer is left alone: the answer
        must not come behind its close."""
        for channel in connection.unfinished_channels():
            if channel is not charged and not channel.waits:
                channel.refuse_unfinished(self._refusal(channel))
        if charged.client is connection:
            raise self._refusal(charged)

    def _refusal(self, channel: UnfinishedChannel) -> AMQPSoftError:
        reason = f"the broker holds {self.nbytes} bytes of what clients have not finished, at most {self._bytes_max}"
        if channel.unfinished_kind is UnfinishedKind.TRANSACTION:
            return AMQPPreconditionFailed(f"transaction of {channel.unfinished_bytes} bytes is too large: {reason}")
        if channel.unfinished_kind is UnfinishedKind.MESSAGE:
            return AMQPContentTooLarge(f"message is too large now: {reason}")
        return AMQPPreconditionFailed(f"too many gaps between acknowledged deliveries: {reason}")


def _bytes_of(connection: Client) -> int:
    return connection.unfinished_bytes
