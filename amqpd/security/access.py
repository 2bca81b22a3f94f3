"""Which user may enter which virtual host, and do what to which queue, exchange and topic.

What comes in: the topology's permissions; questions by name. What goes out: nothing when allowed,
AMQPAccessRefused (403, closes the channel) with RabbitMQ's text when not.
Rules: 1. No permission record, no access. 2. Patterns are searched, not matched from the beginning, and an
empty one matches only the empty name. 3. A pattern that does not compile, or is too long, matches nothing
(the command line refuses it before). 4. Answers are remembered until the topology's version moves.
Not here: when which permission is needed (`channels.py`), the reply text's `ACCESS_REFUSED - `
(`connection.py`).

Facts from RabbitMQ's documentation ("Access Control") and rabbit_access_control.erl. What differs: what is put for
`{username}` and its like stands for itself, its dots and stars are not operators (a name must not widen its own
permission).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Literal

from pamqp.exceptions import AMQPAccessRefused

from amqpd.topology.expressions import Expression, PatternError, compile_expression
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import PermissionRecord, TopicPermissionRecord

Permission = Literal["configure", "write", "read"]
Kind = Literal["queue", "exchange"]

# The default exchange's name where permissions are concerned (rabbit_access_control.erl).
DEFAULT_EXCHANGE = "amq.default"
# Some 20,000 answers with names of usual lengths; a full table is emptied: a client that fills it has more names than
# a table can help. Names have up to 255 bytes, and questions up to nine of them.
ANSWERS_BYTES_MAX = 8 * 1024 * 1024
# What an answer takes beside the names in its question.
ANSWER_BYTES = 320
PATTERNS_MAX = 2_000


class Access:
    """Answers permission questions from the topology, and remembers answers until it changes."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._version = topology.version
        self._answers: dict[tuple[str, ...], bool] = {}
        self._answers_bytes = 0
        self._patterns: dict[str, Expression | None] = {}

    def may_enter(self, user: str, vhost: str) -> bool:
        """Whether the virtual host and the user exist, and the user has any permission record on it."""
        topology = self._topology
        return vhost in topology.vhosts and user in topology.users and (vhost, user) in topology.permissions

    def require(self, user: str, vhost: str, permission: Permission, kind: Kind, name: str) -> None:
        """Raises AMQPAccessRefused."""
        if kind == "exchange" and name == "":
            name = DEFAULT_EXCHANGE
        question = (user, vhost, permission, name)
        answer = self._known(question)
        if answer is None:
            record = self._topology.permissions.get((vhost, user))
            allowed = record is not None and self._search(_pattern_of(record, permission), name)
            answer = self._remember(question, allowed)
        if not answer:
            raise AMQPAccessRefused(
                f"{permission} access to {kind} '{name}' in vhost '{vhost}' refused for user '{user}'"
            )

    def require_topic(
        self,
        user: str,
        vhost: str,
        permission: Literal["write", "read"],
        exchange: str,
        routing_key: str,
        variables: Mapping[str, str],
    ) -> None:
        """For topic exchanges, beside `require`: without a topic permission on the exchange everything is
        allowed. `{name}` in the pattern stands for the variable of that name; `username` and `vhost` are
        always there, MQTT adds `client_id`. Raises AMQPAccessRefused."""
        records = self._topology.topic_permissions.get((vhost, user))
        record = records.get(exchange) if records else None
        if record is None:
            return
        given = {"username": user, "vhost": vhost, **variables}
        variable_parts = chain.from_iterable(sorted(given.items()))
        question = (user, vhost, permission, exchange, routing_key, *variable_parts)
        answer = self._known(question)
        if answer is None:
            pattern = _expanded(_pattern_of(record, permission), given)
            answer = self._remember(question, self._search(pattern, routing_key))
        if not answer:
            raise AMQPAccessRefused(
                f"{permission} access to topic '{routing_key}' in exchange '{exchange}' in vhost '{vhost}' "
                f"refused for user '{user}'"
            )

    def _known(self, question: tuple[str, ...]) -> bool | None:
        if self._version != self._topology.version or self._answers_bytes > ANSWERS_BYTES_MAX:
            self._answers.clear()
            self._answers_bytes = 0
            self._version = self._topology.version
        return self._answers.get(question)

    def _remember(self, question: tuple[str, ...], answer: bool) -> bool:
        self._answers[question] = answer
        self._answers_bytes += ANSWER_BYTES + sum(map(len, question))
        return answer

    def _search(self, pattern: str, name: str) -> bool:
        if pattern not in self._patterns:
            if len(self._patterns) >= PATTERNS_MAX:
                self._patterns.clear()
            try:
                self._patterns[pattern] = compile_pattern(pattern)
            except PatternError:
                self._patterns[pattern] = None
        compiled = self._patterns[pattern]
        return compiled is not None and compiled.is_in(name)


def compile_pattern(pattern: str) -> Expression:
    """Raises PatternError with the reason; the empty pattern is `^$`."""
    return compile_expression(pattern or "^$")


def _pattern_of(record: PermissionRecord | TopicPermissionRecord, permission: Permission) -> str:
    text: str = getattr(record, permission)
    return text


def _expanded(pattern: str, variables: Mapping[str, str]) -> str:
    return re.sub(
        r"\{(\w+)\}",
        lambda found: re.escape(variables[found[1]]) if found[1] in variables else found[0],
        pattern,
    )
