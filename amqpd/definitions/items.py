"""One thing of a definition file as a record.

What comes in: an object of one of the file's lists. What goes out: its record; or `ItemError`, which says whether the
thing is wrong, or is one that is left out.
Rules: members that are missing have RabbitMQ's defaults; members that are not known are passed over, because files of
the HTTP API have many that are only facts.
Not here: the lists, and what is said twice (`document.py`).

Source: rabbit_definitions.erl, rabbit_auth_backend_internal.erl (`put_user`), rabbit_vhost.erl.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpd.security.rabbitmq_hashes import DEFAULT_ALGORITHM, WEAK_ALGORITHM, stored_hash
from amqpd.topology.expressions import PatternError, compile_expression
from amqpd.topology.limit_keys import LIMITS, VHOST_LIMITS, LimitInvalid, check_limits
from amqpd.topology.parameters import ParameterInvalid, check_parameter
from amqpd.topology.policies import check_policy
from amqpd.topology.policy_keys import PolicyInvalid
from amqpd.vocabulary.records import (
    BindingRecord,
    DestinationType,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.json_values import BadValue, as_object, check_kept, from_json, is_text
from amqpd.wire.values import arguments_key

# AMQP 0-9-1 writes names as short strings (4.2.5.3).
NAME_BYTES_MAX = 255
OPERATOR_POLICY = "operator_policy"
"""the component whose parameters are operator policies in a file"""
TWICE = "the same thing stands in the file twice, with different words"
METADATA = ("default_queue_type", "protected_from_deletion")
"""what is kept of a virtual host beside its description and tags"""
# Before 3.6 there was only MD5, and files did not say so.
_MD5_VERSIONS = ("3.0.", "3.1.", "3.2.", "3.3.", "3.4.", "3.5.")

Item = Mapping[str, Any]
_REQUIRED = object()


class ItemError(ValueError):
    """An item of the file that cannot be a record. `left_out`: the import goes on without it."""

    def __init__(self, sentence: str, *, left_out: bool = False) -> None:
        super().__init__(sentence)
        self.left_out = left_out


class Items:
    """Reads the items of one file."""

    def __init__(self, only_vhost: str | None, warnings: list[str]) -> None:
        self._algorithm = DEFAULT_ALGORITHM
        self._only_vhost = only_vhost
        self._warnings = warnings
        self._default_queue_types: dict[str, str] = {}
        self._said: dict[str, str] = {}
        """passwords in clear text by user, be they empty"""
        self.passwords: dict[str, str] = {}
        self.bare_vhosts: set[str] = set()
        self.vhost_limits: dict[str, dict[str, Any]] = {}

    def written_by(self, version: str) -> None:
        """The file says so, before its users."""
        self._algorithm = WEAK_ALGORITHM if version.startswith(_MD5_VERSIONS) else DEFAULT_ALGORITHM

    def vhost(self, item: Item) -> VhostRecord:
        name = _name(item, "name")
        metadata = as_object(item.get("metadata", {}))
        if not isinstance(metadata, dict):
            raise ItemError("metadata is not an object")
        description = item.get("description", metadata.get("description", ""))
        kept: dict[str, Any] = {}
        tags = _tags(item.get("tags", metadata.get("tags", [])))
        if tags:
            kept["tags"] = list(tags)
        for key in METADATA:
            # RabbitMQ 3.11 and 3.12 write "undefined" for a default queue type that is not set.
            value = metadata.get(key, item.get(key))
            if value not in (None, "undefined", False):
                kept[key] = _checked(value, key)
        if "default_queue_type" in kept:
            self._default_queue_types[name] = str(kept["default_queue_type"])
        if item.keys() <= {"name", "limits"}:
            self.bare_vhosts.add(name)
        limits = _limits("vhost", item.get("limits", {}))
        if self.vhost_limits.setdefault(name, limits) != limits:
            raise ItemError(TWICE)
        if not isinstance(description, str) or not is_text(description):
            raise ItemError("the description is not a text")
        return VhostRecord(name, description, metadata=kept)

    def user(self, item: Item) -> UserRecord:
        name = _name(item, "name")
        tags = _tags(item["tags"]) if "tags" in item else ("administrator",) if item.get("administrator") else ()
        password, password_hash = item.get("password"), item.get("password_hash")
        if password is not None and password_hash is not None:
            raise ItemError("both password and password_hash are given: leave one out")
        stored = ""
        if password is not None:
            if not isinstance(password, str) or not is_text(password):
                raise ItemError("the password is not a text")
            if password:
                self.passwords.setdefault(name, password)
        elif password_hash is not None:
            algorithm = item.get("hashing_algorithm", self._algorithm)
            if not isinstance(password_hash, str) or not isinstance(algorithm, str):
                raise ItemError("password_hash and hashing_algorithm are texts")
            try:
                stored = stored_hash(algorithm, password_hash)
            except ValueError as error:
                raise ItemError(str(error)) from None
            if stored and algorithm == WEAK_ALGORITHM:
                self._warnings.append(f"the password of user '{name}' is an MD5 hash, quick to guess: set a new one")
        # Records have no password in clear text, so of two of one user nobody else would see that they differ.
        if self._said.setdefault(name, password or "") != (password or ""):
            raise ItemError(TWICE)
        if item.get("permissions"):
            self._warnings.append(f"permissions within user '{name}' are not read: write them as 'permissions'")
        return UserRecord(name, stored, tags, limits=_limits("user", item.get("limits", {})))

    def permission(self, item: Item) -> PermissionRecord:
        configure, write, read = (_pattern(item, kind) for kind in ("configure", "write", "read"))
        return PermissionRecord(_name(item, "user"), self._vhost(item), configure, write, read)

    def topic_permission(self, item: Item) -> TopicPermissionRecord:
        write, read = (_pattern(item, kind) for kind in ("write", "read"))
        # The default exchange is none of topics; a permission on it means nothing and is kept.
        exchange = _text(item, "exchange")
        return TopicPermissionRecord(_name(item, "user"), self._vhost(item), exchange, write, read)

    def global_parameter(self, item: Item) -> ParameterRecord:
        return ParameterRecord("", "", _name(item, "name"), _checked(_objects(item.get("value")), "value"))

    def parameter(self, item: Item) -> ParameterRecord | PolicyRecord:
        vhost, component, name = self._vhost(item), _name(item, "component"), _name(item, "name")
        value = item.get("value")
        if component == OPERATOR_POLICY:
            described = as_object(value)
            if not isinstance(described, dict):
                raise ItemError("the value of an operator policy is not an object")
            return self._policy(vhost, name, described, operator=True)
        if (component, name) == (VHOST_LIMITS, LIMITS):
            return ParameterRecord(vhost, component, name, _limits("vhost", value))
        record = ParameterRecord(vhost, component, name, _checked(_objects(value), "value"))
        try:
            check_parameter(record)
        except ParameterInvalid as error:
            raise ItemError(str(error)) from None
        return record

    def policy(self, item: Item) -> PolicyRecord:
        return self._policy(self._vhost(item), _name(item, "name"), item, operator=False)

    def _policy(self, vhost: str, name: str, described: Item, *, operator: bool) -> PolicyRecord:
        definition = _checked(_objects(as_object(described.get("definition"))), "definition")
        record = PolicyRecord(
            vhost,
            name,
            _text(described, "pattern"),
            _text(described, "apply-to", "all"),
            definition,
            described.get("priority", 0),
            operator,
        )
        try:
            check_policy(record)
        except PolicyInvalid as error:
            raise ItemError(str(error)) from None
        return record

    def exchange(self, item: Item) -> ExchangeRecord:
        vhost, name = self._vhost(item), _text(item, "name")
        if not name or name.startswith("amq."):
            raise ItemError("it belongs to the broker", left_out=True)
        return ExchangeRecord(
            vhost,
            _name(item, "name"),
            _name(item, "type"),
            durable=_flag(item, "durable", True),
            auto_delete=_flag(item, "auto_delete", False),
            internal=_flag(item, "internal", False),
            arguments=_arguments(item),
        )

    def queue(self, item: Item) -> QueueRecord:
        vhost, name = self._vhost(item), _name(item, "name")
        if name.startswith("amq."):
            raise ItemError("names that begin with amq. are the broker's to give", left_out=True)
        if _flag(item, "exclusive", False):
            raise ItemError("an exclusive queue belongs to a connection", left_out=True)
        arguments = _arguments(item)
        default_type = self._default_queue_types.get(vhost, "classic")
        queue_type = item.get("type", default_type)
        if "x-queue-type" not in arguments and isinstance(queue_type, str) and queue_type != "classic":
            arguments = {**arguments, "x-queue-type": queue_type}
        durable = _flag(item, "durable", True)
        return QueueRecord(
            vhost, name, 0, durable=durable, auto_delete=_flag(item, "auto_delete", False), arguments=arguments
        )

    def binding(self, item: Item) -> BindingRecord:
        vhost, source = self._vhost(item), _text(item, "source")
        kind: DestinationType
        match item.get("destination_type"):
            case "queue":
                kind = "queue"
            case "exchange":
                kind = "exchange"
            case _:
                raise ItemError("the destination_type is neither queue nor exchange")
        if not source:
            raise ItemError("every queue is bound to the default exchange by itself", left_out=True)
        arguments = _arguments(item)
        destination, routing_key = _name(item, "destination"), _text(item, "routing_key", "")
        key = arguments_key(arguments)
        return BindingRecord(vhost, source, destination, kind, routing_key, arguments=arguments, arguments_key=key)

    def _vhost(self, item: Item) -> str:
        if self._only_vhost is not None:
            return self._only_vhost
        if "vhost" not in item:
            raise ItemError("no virtual host is named: if this is the file of one, say which it is for (--vhost)")
        return _name(item, "vhost")


def _text(item: Item, member: str, default: Any = _REQUIRED) -> str:
    value = item.get(member, default)
    if value is _REQUIRED:
        raise ItemError(f"{member} is missing")
    if not isinstance(value, str) or not is_text(value):
        raise ItemError(f"{member} is not a text")
    if len(value.encode()) > NAME_BYTES_MAX and member != "pattern":
        raise ItemError(f"{member} is longer than {NAME_BYTES_MAX} bytes")
    return value


def _name(item: Item, member: str) -> str:
    value = _text(item, member)
    if not value:
        raise ItemError(f"{member} is empty")
    return value


def _flag(item: Item, member: str, default: bool) -> bool:
    value = item.get(member, default)
    if not isinstance(value, bool):
        raise ItemError(f"{member} is neither true nor false")
    return value


def _pattern(item: Item, member: str) -> str:
    value = item.get(member)
    if not isinstance(value, str) or not is_text(value):
        raise ItemError(f"{member} is not a text")
    try:
        compile_expression(value)
    except PatternError as error:
        raise ItemError(f"{member} is not a regular expression that can be used: {error}") from None
    return value


def _arguments(item: Item) -> dict[str, Any]:
    value = as_object(item.get("arguments", {}))
    if not isinstance(value, dict):
        raise ItemError("arguments is not an object")
    try:
        found: dict[str, Any] = from_json(value)
    except BadValue as error:
        raise ItemError(f"arguments: {error}") from None
    return found


def _limits(owner: Any, value: Any) -> dict[str, Any]:
    limits = as_object(value)
    try:
        check_limits(owner, limits)
    except LimitInvalid as error:
        raise ItemError(str(error)) from None
    return dict(limits)


def _tags(value: Any) -> tuple[str, ...]:
    """RabbitMQ 3.x writes "administrator,monitoring" where 4.x writes a list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(tag, str) and is_text(tag) for tag in parts):
        raise ItemError("tags is neither a list of texts nor a text with commas")
    return tuple(dict.fromkeys(tag.strip() for tag in parts if tag.strip()))


def _checked(value: Any, member: str) -> Any:
    """A value that is kept as JSON."""
    try:
        check_kept(value)
    except BadValue as error:
        raise ItemError(f"{member}: {error}") from None
    return value


def _objects(value: Any) -> Any:
    """With all lists of pairs in it as objects; an empty list stays one."""
    if isinstance(value, list):
        value = as_object(value) if value else value
    if isinstance(value, dict):
        return {name: _objects(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_objects(member) for member in value]
    return value
