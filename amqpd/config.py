"""All settings of a broker, as one immutable value.

What comes in: values by name, as TOML, the environment or flags give them. What goes out: `Settings`, checked
and complete.
Rules: 1. One name for a setting everywhere: `frame_max` in the file, `AMQPD_FRAME_MAX` in the environment;
those of the table `[tls]` are `AMQPD_TLS_...`. 2. The unit is the end of the name: `_s` seconds, `_bytes`
bytes (a number, or text such as "128MiB"). 3. Every bound has its reason above it. 4. `Settings(...)` reads
nothing but its arguments.
Not here: files, environment and error sentences (`process/config_sources.py`); what is done with the values (the
other packages).
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from amqpd.vocabulary.audit_levels import parse_level
from amqpd.vocabulary.store_address import parse_store_address

# It is part of reply texts, which have 255 bytes.
NODE_NAME_MAX = 100
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DEFAULT_BIND = ("127.0.0.1", "::1")

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_bytes(value: Any) -> Any:
    """A number of bytes from text such as "50MB" (10**6) or "128 MiB" (2**20); other values are returned as
    they are."""
    if isinstance(value, bool):
        raise ValueError("must be a number of bytes, not true or false")
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError("must be a number of bytes, or a size such as 50MB or 128MiB")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def parse_watermark(value: Any) -> Any:
    """A float up to 1 is a fraction of the memory, everything above is bytes (an int)."""
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"\s*(0?\.\d+|1\.0*)\s*", value) else parse_bytes(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a fraction such as 0.6, or a size such as 2GiB")
    if 0 < value <= 1:
        return float(value)
    # A broker with nothing in it takes some 95 MB; a limit near that would block publishers for ever.
    if value < 128 * MIB:
        raise ValueError("must be a fraction of the memory (more than 0, up to 1), or at least 128MiB")
    return int(value)


def split_commas(value: Any) -> Any:
    """A list from "a, b" (environment variables and flags have no lists); other values are returned as they
    are."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def refuse_long(value: str) -> str:
    """server-properties go out before frame_max is negotiated, so all of them together fit the smallest frame."""
    if len(value.encode("utf-8", "surrogateescape")) > 255 or not value.isprintable():
        raise ValueError("must be printable text of at most 255 bytes")
    return value


def complete_node_name(value: str) -> str:
    """`name@host`; without a host, this machine's. The name goes into texts of at most 255 bytes and into names of
    files, so it is short, and without what has a meaning there."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*(@[A-Za-z0-9_.-]+)?", value) is None or len(value) > NODE_NAME_MAX:
        raise ValueError(
            f"must be a name such as amqpd, or name@host: letters, digits, '_', '.' and '-', at most {NODE_NAME_MAX}"
        )
    return value if "@" in value else f"{value}@{host_name()}"


def host_name() -> str:
    """This machine's, as far as it can be part of a node's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()) or "localhost"


def require_store_address(value: str) -> str:
    if value:
        parse_store_address(value)
    return value


def refuse_switch(value: Any) -> Any:
    """`port = true` would otherwise be port 1, because Python's True is a number."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def refuse_empty(value: Any) -> Any:
    """Path("") is the current directory, which is never meant by it."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be empty")
    return value


Count = Annotated[int, BeforeValidator(refuse_switch)]
Seconds = Annotated[float, BeforeValidator(refuse_switch), Field(allow_inf_nan=False)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Port = Annotated[int, BeforeValidator(refuse_switch), Field(ge=0, le=65535)]
Watermark = Annotated[float | int, BeforeValidator(parse_watermark)]
Place = Annotated[Path, BeforeValidator(refuse_empty), AfterValidator(Path.expanduser)]
ShortName = Annotated[str, AfterValidator(refuse_long)]
StoreUrl = Annotated[str, AfterValidator(require_store_address)]
NodeName = Annotated[str, AfterValidator(complete_node_name)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)]


class TlsSettings(BaseModel):
    """The table `[tls]`. The TLS listener opens when a certificate is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # 5671 is what IANA registered for amqps.
    port: Port = 5671
    # PEM, the server's certificate first, then the intermediate ones.
    certificate: Place | None = None
    # PEM; when it is not given, the key is looked for in the certificate's file.
    key: Place | None = None
    # PEM, the authorities that client certificates are checked against.
    ca: Place | None = None
    # none: do not ask a client for a certificate; optional: check it if there is one; required: refuse
    # clients without.
    verify_peer: Literal["none", "optional", "required"] = "none"
    # TLS 1.0 and 1.1 are deprecated (RFC 8996), and OpenSSL 3 refuses them at its usual security level.
    min_version: Literal["1.2", "1.3"] = "1.2"
    # Which part of a client certificate is the user name of the EXTERNAL mechanism; the default is
    # RabbitMQ's.
    login_from: Literal["distinguished_name", "common_name", "subject_alternative_name"] = "distinguished_name"

    @property
    def enabled(self) -> bool:
        return self.certificate is not None

    @model_validator(mode="after")
    def _fits_together(self) -> TlsSettings:
        if self.key is not None and self.certificate is None:
            raise ValueError("tls.key is set without tls.certificate: set both, or neither")
        if self.verify_peer != "none" and self.ca is None:
            raise ValueError(f"tls.verify_peer is {self.verify_peer!r} without tls.ca: say whom to trust")
        if self.verify_peer != "none" and self.certificate is None:
            raise ValueError("tls.verify_peer is set without tls.certificate: TLS is off")
        return self


def require_level(value: str) -> str:
    return parse_level(value).text


Level = Annotated[str, AfterValidator(require_level)]


class AuditSettings(BaseModel):
    """The table `[audit]`: what is recorded of messages and acts (docs/audit.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # off, admin, counts, sample(p), full: each has what the ones before it have. Acts and figures cost nothing that
    # could be measured; each message's events cost some percent, and disk.
    level: Level = "counts"
    # Virtual hosts with a level of their own. A queue's policy may say `audit` too, and is stronger.
    vhosts: dict[str, Level] = {}
    # The name of this broker in the log; empty: its node_name if that is set, else the machine's.
    node: Annotated[str, AfterValidator(refuse_long)] = ""
    # A file of the log has what happened in this number of seconds, or bytes of the spool: minutes, so that the log
    # can be looked at soon, and so that a day is some hundred files.
    file_seconds: Annotated[Seconds, Field(gt=0, le=86_400)] = 300.0
    spool_bytes: Annotated[Bytes, Field(ge=64 * KIB, le=1024 * MIB)] = 32 * MIB
    # Older files are deleted, and the oldest while there are more bytes. 0: no bound.
    keep_days: Annotated[Seconds, Field(ge=0, le=36_500)] = 30.0
    keep_bytes: Annotated[Bytes, Field(ge=0)] = 10 * GIB
    # When the log cannot be written: continue (messages go on, and the log says what it misses) or stop (publishers
    # wait until it can).
    on_full: Literal["continue", "stop"] = "continue"

    @model_validator(mode="after")
    def _fits_together(self) -> AuditSettings:
        if "/" in self.node or self.node.startswith("."):
            raise ValueError("audit.node is part of file names: without '/', and not beginning with a dot")
        return self


def default_data_dir() -> Path:
    """/var/lib/amqpd for root, else amqpd in the XDG state directory.

    Not `./data`: a durable broker that is started from another directory and comes up empty looks like lost
    data."""
    if os.geteuid() == 0:
        return Path("/var/lib/amqpd")
    state = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path there is invalid and to be ignored.
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "amqpd"


class Settings(BaseSettings):
    """Everything an operator can decide. Frozen: a broker never changes its settings while it runs."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="AMQPD_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        # Compose files pass AMQPD_X= for "not set".
        env_ignore_empty=True,
    )

    # Where clients connect. Loopback, because a broker with guest/guest must not be open to a network by
    # default. A literal address or a host name each; IPv4 and IPv6 are bound one by one (0.0.0.0 and :: for
    # every interface).
    bind: Names = Field(default=DEFAULT_BIND, min_length=1)
    # 5672 is what IANA registered for amqp. 0: the system chooses (tests).
    port: Port = 5672
    # False: TLS only.
    plain_listener: bool = True
    tls: TlsSettings = TlsSettings()
    audit: AuditSettings = AuditSettings()

    # What this broker is called in messages, traces and `amqpd status`: RabbitMQ's nodes are called name@host. It is
    # for people: what is stored is found by an id in the data directory, so the name may be changed at any start.
    node_name: NodeName = Field(default="amqpd", validate_default=True)
    data_dir: Place = Field(default_factory=default_data_dir)
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    # Where definitions are kept when not in the data directory: etcd://HOST[:PORT],... or etcds://... (TLS).
    cluster_store: StoreUrl = ""
    # PEM: whom to trust (not given: whom the system trusts), and the broker's own certificate, if etcd asks for one.
    cluster_store_ca: Place | None = None
    cluster_store_certificate: Place | None = None
    cluster_store_key: Place | None = None
    # Of etcd's own authentication. Empty: it has none.
    cluster_store_user: str = ""
    cluster_store_password: SecretStr = SecretStr("")

    # These users may log in from loopback only: guest has a password that everyone knows.
    loopback_users: Names = ("guest",)

    # What connection.start says that this broker is. Some libraries behave otherwise with another product than
    # RabbitMQ: kombu (Celery) limits the prefetch of a channel's consumers together, by basic.qos with global, when
    # product is "RabbitMQ" and version from 3.3 to 3.x, and that of each consumer with any other. amqpd does what
    # RabbitMQ does with either, so a library that insists may be told so. An empty version is our own.
    # With a version 3.x the x-death of a message that a client publishes again counts on, as until RabbitMQ 4.0.
    server_product: ShortName = Field(default="amqpd", min_length=1)
    server_version: ShortName = ""

    # A connection costs a descriptor and some kilobytes. The limit of open files of the process bounds it too,
    # the smaller counts.
    connections_max: Count = Field(default=65_536, ge=1, le=1_000_000)
    # What the node may have of each; a client that asks for one more is refused with RabbitMQ's error, where
    # connections_max just hangs up. -1: no limit, as in RabbitMQ (connection_max, channel_max_per_node,
    # cluster_queue_limit, cluster_exchange_limit); memory is the limit then.
    node_connections_max: Count = Field(default=-1, ge=-1)
    node_channels_max: Count = Field(default=-1, ge=-1)
    node_queues_max: Count = Field(default=-1, ge=-1)
    node_exchanges_max: Count = Field(default=-1, ge=-1)
    # What RabbitMQ proposes: it is on everyone's tests, and some clients break on 0 ("no limit").
    channel_max: Count = Field(default=2047, ge=1, le=65_535)
    # 128 KiB as RabbitMQ. At least 4096, AMQP 0-9-1's frame-min-size (RabbitMQ 4.1 asks for 8192, old clients
    # send 4096). At most 16 MiB: what a partial frame may pin in memory, for each connection.
    frame_max: Bytes = Field(default=131_072, ge=4096, le=16 * MIB)
    # What tune proposes; the client decides. 0: none. 60 s as RabbitMQ: below 5 s a busy network looks like a
    # dead one. Two bytes in connection.tune, so at most 65535.
    heartbeat_s: Count = Field(default=60, ge=0, le=65_535)
    # From accept to connection.open, so that half-open clients do not hold descriptors. 10 s as RabbitMQ.
    handshake_timeout_s: Seconds = Field(default=10.0, gt=0, le=600)
    # A client that takes nothing of what is sent to it for so long is dropped, and what was delivered to it comes to
    # others: its TCP may say for ever that it has no space now. 30 s as RabbitMQ, for a client that is only held up.
    send_timeout_s: Seconds = Field(default=30.0, gt=0, le=86_400)
    # A delivery that is not acknowledged for so long closes its channel, and comes to another consumer. 30 minutes as
    # RabbitMQ: a consumer that forgets to acknowledge keeps messages from all others, and on the disk. Queues
    # may have their own (x-consumer-timeout, the policy consumer-timeout). 0: never.
    consumer_timeout_s: Seconds = Field(default=1800.0, ge=0, le=31_536_000)
    # The largest body. 128 MiB was RabbitMQ's limit until 4.0; at most 512 MiB, because a message is in
    # memory whole.
    message_bytes_max: Bytes = Field(default=128 * MIB, ge=1, le=512 * MIB)

    # Above it, publishers are blocked. A fraction of the memory that the machine (or its cgroup) has, or
    # bytes. 0.6 as RabbitMQ: what is left is for the page cache, which the journal lives from.
    memory_high_watermark: Watermark = 0.6
    # Below it, publishers are blocked. 50 MB as RabbitMQ: it is the space in which acks are recorded while
    # publishers wait, and it is more than the journal writes between two looks at the disk (alarms.py). 0
    # turns the alarm off.
    disk_free_bytes_min: Bytes = Field(default=50_000_000, ge=0)
    # What one queue keeps in memory of its backlog; the rest is on disk only, and is read back ahead of
    # consumers. 16 MiB is some tens of milliseconds of deliveries: enough to hide a read from the disk.
    queue_memory_bytes: Bytes = Field(default=16 * MIB, ge=64 * KIB)
    # The same for all queues together. 128 MiB lets eight queues be full, and the broker stay under 300 MB.
    backlog_memory_bytes: Bytes = Field(default=128 * MIB, ge=1 * MIB)
    # What queues, exchanges and bindings of one virtual host may take in memory, without messages; more is refused
    # (406). 1 GiB is some 140,000 queues, or a million bindings. At most half of the memory below
    # memory_high_watermark: declarations could set off the alarm for all, and it does not stop them.
    vhost_topology_bytes_max: Bytes = Field(default=1024 * MIB, ge=1 * MIB)
    # What clients have begun and not finished, on the whole node: transactions that are not committed, messages that
    # have not come whole. At most a quarter of the memory below memory_high_watermark, or one message: a client that
    # is blocked cannot finish. 512 MiB holds four of the largest messages.
    unfinished_bytes_max: Bytes = Field(default=512 * MIB, ge=1 * MIB)
    # What waits for one slow client; above it the broker stops delivering to it. Several frames, or no
    # delivery would fit.
    outbox_bytes_max: Bytes = Field(default=4 * MIB, ge=64 * KIB)
    # The same for all clients together: above it, each new one gets no more than 64 KiB ahead. 256 MiB are 64 clients
    # that do not read, with all that outbox_bytes_max lets wait for them. At most a quarter of the memory below
    # memory_high_watermark.
    outboxes_bytes_max: Bytes = Field(default=256 * MIB, ge=1 * MIB)
    # After a message the broker stays awake so long for the next one, unless there is one processor only: to wake a
    # processor that sleeps takes longer than a small message. 0: it sleeps at once, which saves power.
    busy_wait_us: Count = Field(default=100, ge=0, le=1000)
    # Within so long the scrub reads all that is stored once, and finds damage before a consumer (docs/damage.md). A
    # week: disks go bad slowly, and 100 GB are then read at 180 kB a second. 0: off.
    scrub_interval_s: Seconds = Field(default=604_800.0, ge=0, le=31_536_000)
    # The scrub never reads faster, whatever the interval. 4 MiB a second are a few percent of what a slow disk reads.
    scrub_bytes_per_s_max: Bytes = Field(default=4 * MIB, ge=1 * KIB)
    # From SIGTERM to the end. Below the 10 s after which Docker kills, so that a stuck client does not turn a
    # stop into a kill.
    drain_timeout_s: Seconds = Field(default=8.0, ge=0, le=3600)

    @property
    def audit_node(self) -> str:
        """What the audit log calls this broker. Until there was `node_name` it was the machine's name: a log that was
        begun under that goes on."""
        named = self.node_name if "node_name" in self.model_fields_set else socket.gethostname()
        return self.audit.node or named

    @property
    def published_deaths(self) -> bool:
        """As RabbitMQ before 4.0, if it says that it is one; see `queues/deadletters.py`."""
        return self.server_version.startswith("3.")

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if not self.plain_listener and not self.tls.enabled:
            raise ValueError("plain_listener is false without tls.certificate: nobody could connect")
        if self.plain_listener and self.tls.enabled and self.port == self.tls.port != 0:
            raise ValueError(f"port and tls.port are both {self.port}: give each listener its own")
        if self.queue_memory_bytes > self.backlog_memory_bytes:
            raise ValueError(
                "queue_memory_bytes is more than backlog_memory_bytes, the bound for all queues together"
            )
        if self.outbox_bytes_max < 2 * self.frame_max:
            raise ValueError("outbox_bytes_max is less than two frames of frame_max")
        return self

    @model_validator(mode="after")
    def _cluster_store_fits_together(self) -> Settings:
        files = (self.cluster_store_ca, self.cluster_store_certificate, self.cluster_store_key)
        if any(each is not None for each in files) and not self.cluster_store.startswith("etcds:"):
            raise ValueError(
                "cluster_store_ca, _certificate and _key are for TLS: write cluster_store as etcds://..."
            )
        if self.cluster_store_key is not None and self.cluster_store_certificate is None:
            raise ValueError("cluster_store_key is set without cluster_store_certificate: set both, or neither")
        if bool(self.cluster_store_user) != bool(self.cluster_store_password.get_secret_value()):
            raise ValueError("cluster_store_user and cluster_store_password: set both, or neither")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `Settings(port=0)` in a test must not depend on the environment (rule 4)."""
        return (init_settings,)
