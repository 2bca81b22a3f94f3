"""Commands on the broker that was started for the run: users, permissions, virtual hosts, policies, limits.

What comes in: the same calls for every broker. What goes out: the broker's own command line.
Rules: 1. A command that the broker refuses is an `AdminError`, with its words. 2. What was made is taken away by
`clean_up`, which knows it by what was called here. 3. What a broker has no command for raises `NotThere`.
Not here: a broker that is only an address has no commands; tests that need them are skipped (`conftest.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

from amqpd.__main__ import run as amqpd_command
from conformance.broker import Broker
from tests.clients.broker_process import BrokerProcess
from tests.clients.rabbitmq_process import RabbitMQProcess


class AdminError(AssertionError):
    """The broker refused the command."""


class NotThere(NotImplementedError):
    """The broker has no such command."""


class Admin(ABC):
    """Users and permissions for `/` or another virtual host; each command has taken effect when it returns."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._vhosts: set[str] = set()
        self._policies: set[tuple[str, str, bool]] = set()
        self._limited: set[tuple[str, str]] = set()

    # users and virtual hosts

    def add_user(self, name: str, password: str, tags: Sequence[str] = ()) -> None:
        self._users.add(name)
        self._add_user(name, password, tags)

    def delete_user(self, name: str) -> None:
        self._delete_user(name)
        self._users.discard(name)

    def add_vhost(self, name: str) -> None:
        self._vhosts.add(name)
        self._command_add_vhost(name)

    def delete_vhost(self, name: str) -> None:
        self._command_delete_vhost(name)
        self._vhosts.discard(name)

    @abstractmethod
    def change_password(self, name: str, password: str) -> None: ...

    @abstractmethod
    def set_permissions(self, vhost: str, user: str, conf: str, write: str, read: str) -> None: ...

    @abstractmethod
    def clear_permissions(self, vhost: str, user: str) -> None: ...

    @abstractmethod
    def set_topic_permissions(self, vhost: str, user: str, exchange: str, write: str, read: str) -> None: ...

    # policies and limits

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Any],
        apply_to: str = "all",
        priority: int = 0,
        operator: bool = False,
    ) -> None:
        """`apply_to`: all, queues, exchanges. An operator policy is always for queues."""
        self._set_policy(vhost, name, pattern, json.dumps(definition), apply_to, priority, operator)
        self._policies.add((vhost, name, operator))  # not when it was refused: then there is nothing to clear

    def clear_policy(self, vhost: str, name: str, operator: bool = False) -> None:
        self._clear_policy(vhost, name, operator)
        self._policies.discard((vhost, name, operator))

    def set_vhost_limits(self, vhost: str, limits: Mapping[str, int]) -> None:
        """`max-connections`, `max-queues`; an empty mapping lifts them."""
        self._limit("vhost", vhost, limits)

    def set_user_limits(self, user: str, limits: Mapping[str, int]) -> None:
        """`max-connections`, `max-channels`; an empty mapping lifts them."""
        self._limit("user", user, limits)

    # connections and alarms

    @abstractmethod
    def close_connection(self, name: str, reason: str = "closed by a test") -> None:
        """By its name, "127.0.0.1:4711 -> 127.0.0.1:5672" (a `Wire` knows its own)."""

    @abstractmethod
    def set_alarm(self, on: bool) -> None:
        """The memory alarm, on or off."""

    @abstractmethod
    def set_trace(self, vhost: str, on: bool) -> None:
        """The firehose."""

    def clean_up(self) -> None:
        for vhost, name, operator in list(self._policies):
            if vhost not in self._vhosts:
                self.clear_policy(vhost, name, operator)
        for kind, name in list(self._limited):
            if name not in self._users | self._vhosts:
                self._limit(kind, name, {})
        for name in list(self._users):
            self.delete_user(name)
        for name in list(self._vhosts):
            self.delete_vhost(name)

    # what a broker's own command line does of it

    def _limit(self, kind: str, name: str, limits: Mapping[str, int]) -> None:
        self._limited.add((kind, name))
        self._set_limits(kind, name, limits)
        if not limits:
            self._limited.discard((kind, name))

    @abstractmethod
    def _add_user(self, name: str, password: str, tags: Sequence[str]) -> None: ...

    @abstractmethod
    def _delete_user(self, name: str) -> None: ...

    @abstractmethod
    def _command_add_vhost(self, name: str) -> None: ...

    @abstractmethod
    def _command_delete_vhost(self, name: str) -> None: ...

    @abstractmethod
    def _set_policy(
        self, vhost: str, name: str, pattern: str, definition: str, apply_to: str, priority: int, operator: bool
    ) -> None: ...

    @abstractmethod
    def _clear_policy(self, vhost: str, name: str, operator: bool) -> None: ...

    @abstractmethod
    def _set_limits(self, kind: str, name: str, limits: Mapping[str, int]) -> None: ...


class AmqpdAdmin(Admin):
    """`amqpd ...`, run in this process: a start of Python would cost more than the command."""

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__()
        self._data_dir = str(process.data_dir)
        self._settings = process.environment  # where its definitions are

    def command(self, *words: str) -> str:
        """What it printed. Raises AdminError."""
        said, complained = io.StringIO(), io.StringIO()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AMQPD_")}
        environment |= self._settings
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(complained),
        ):
            code = amqpd_command(["--data-dir", self._data_dir, *words])
        if code:
            raise AdminError(f"amqpd {' '.join(words)}: {complained.getvalue() or said.getvalue()}")
        return said.getvalue()

    def _add_user(self, name: str, password: str, tags: Sequence[str]) -> None:
        flags = [word for tag in tags for word in ("--tag", tag)]
        self.command("user", "add", *flags, "--", name, password)

    def change_password(self, name: str, password: str) -> None:
        self.command("user", "passwd", "--", name, password)

    def _delete_user(self, name: str) -> None:
        self.command("user", "delete", name)

    def _command_add_vhost(self, name: str) -> None:
        self.command("vhost", "add", name)

    def _command_delete_vhost(self, name: str) -> None:
        self.command("vhost", "delete", name)

    def set_permissions(self, vhost: str, user: str, conf: str, write: str, read: str) -> None:
        self.command("permission", "set", "--", vhost, user, conf, write, read)

    def clear_permissions(self, vhost: str, user: str) -> None:
        self.command("permission", "clear", vhost, user)

    def set_topic_permissions(self, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
        self.command("permission", "topic", "set", "--", vhost, user, exchange, write, read)

    def _set_policy(
        self, vhost: str, name: str, pattern: str, definition: str, apply_to: str, priority: int, operator: bool
    ) -> None:
        command = "operator-policy" if operator else "policy"
        options = ["--priority", str(priority), "--apply-to", "queues" if operator else apply_to]
        self.command(command, "set", *options, "--", vhost, name, pattern, definition)

    def _clear_policy(self, vhost: str, name: str, operator: bool) -> None:
        self.command("operator-policy" if operator else "policy", "clear", vhost, name)

    def _set_limits(self, kind: str, name: str, limits: Mapping[str, int]) -> None:
        if limits:
            options = [word for limit, value in limits.items() for word in (f"--{limit}", str(value))]
            self.command("limits", f"set-{kind}", *options, name)
        else:
            self.command("limits", f"clear-{kind}", name)

    def close_connection(self, name: str, reason: str = "closed by a test") -> None:
        self.command("connection", "close", "--reason", reason, "--", name)

    def set_alarm(self, on: bool) -> None:
        self.command("alarm", "set" if on else "clear", "memory")

    def set_trace(self, vhost: str, on: bool) -> None:
        self.command("trace", "on" if on else "off", "--vhost", vhost)


class RabbitMQAdmin(Admin):
    """`rabbitmqctl ...` on the private node."""

    def __init__(self, process: RabbitMQProcess) -> None:
        super().__init__()
        self._process = process

    def command(self, *words: str) -> str:
        """What it printed. Raises AdminError."""
        code, said = self._process.rabbitmqctl(*words)
        if code:
            raise AdminError(f"rabbitmqctl {' '.join(words)}: {said}")
        return said

    def _add_user(self, name: str, password: str, tags: Sequence[str]) -> None:
        self.command("add_user", "--", name, password)
        if tags:
            self.command("set_user_tags", name, *tags)

    def change_password(self, name: str, password: str) -> None:
        self.command("change_password", "--", name, password)

    def _delete_user(self, name: str) -> None:
        self.command("delete_user", name)

    def _command_add_vhost(self, name: str) -> None:
        self.command("add_vhost", name)

    def _command_delete_vhost(self, name: str) -> None:
        self.command("delete_vhost", name)

    def set_permissions(self, vhost: str, user: str, conf: str, write: str, read: str) -> None:
        self.command("set_permissions", "-p", vhost, "--", user, conf, write, read)

    def clear_permissions(self, vhost: str, user: str) -> None:
        self.command("clear_permissions", "-p", vhost, user)

    def set_topic_permissions(self, vhost: str, user: str, exchange: str, write: str, read: str) -> None:
        self.command("set_topic_permissions", "-p", vhost, "--", user, exchange, write, read)

    def _set_policy(
        self, vhost: str, name: str, pattern: str, definition: str, apply_to: str, priority: int, operator: bool
    ) -> None:
        command = "set_operator_policy" if operator else "set_policy"
        to = "queues" if operator else apply_to
        self.command(command, "-p", vhost, "--priority", str(priority), "--apply-to", to, name, pattern, definition)

    def _clear_policy(self, vhost: str, name: str, operator: bool) -> None:
        self.command("clear_operator_policy" if operator else "clear_policy", "-p", vhost, name)

    def _set_limits(self, kind: str, name: str, limits: Mapping[str, int]) -> None:
        if kind == "vhost":
            command = ["set_vhost_limits", "-p", name, json.dumps(dict(limits))]
            self.command(*(command if limits else ["clear_vhost_limits", "-p", name]))
        else:
            command = ["set_user_limits", name, json.dumps(dict(limits))]
            self.command(*(command if limits else ["clear_user_limits", name, "all"]))

    def close_connection(self, name: str, reason: str = "closed by a test") -> None:
        listed = self.command("list_connections", "-q", "pid", "name").splitlines()
        [pid] = [line.partition("\t")[0] for line in listed if line.endswith("\t" + name)]
        self.command("close_connection", pid, reason)

    def set_alarm(self, on: bool) -> None:
        self.command("set_vm_memory_high_watermark", *(["absolute", "1"] if on else ["0.6"]))

    def set_trace(self, vhost: str, on: bool) -> None:
        self.command("trace_on" if on else "trace_off", "-p", vhost)


def admin_of(broker: Broker) -> Admin | None:
    """None for a broker that is only an address."""
    if isinstance(broker.process, RabbitMQProcess):
        return RabbitMQAdmin(broker.process)
    return AmqpdAdmin(broker.process) if broker.process is not None else None
