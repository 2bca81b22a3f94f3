"""All settings of a broker, as one immutable value.

What comes in: values by name, as TOML, the environment or flags give them. What goes out: `Settings`, checked
and complete.
Rules: 1. One name for a setting everywhere: `frame_max` in the file, `AMQPD_FRAME_MAX` in the environment;
those of the table `[tls]` are `AMQPD_TLS_...`. 2. The unit is the end of the name: `_s` seconds, `_bytes`
bytes (a number, or text such as "128MiB"). 3. Every bound has its reason above it. 4. `Settings(...)` reads
nothing but its arguments.
Not here: what a single value may be (`setting_types.py`); tables (`setting_tables.py`); files, environment and
error sentences (`process/config_sources.py`); what is done with the values (the other packages).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from amqpd.setting_tables import AuditSettings, EventsSettings, HttpSettings, OtelSettings, TlsSettings
from amqpd.setting_types import (
    KIB,
    MIB,
    Bytes,
    Count,
    ImpliedHost,
    Label,
    Listening,
    Names,
    NodeName,
    Place,
    Places,
    Port,
    Reachable,
    Seconds,
    ShortName,
    StoreUrl,
    Watermark,
    host_name,
    require_odd,
    split_commas,
)
from amqpd.vocabulary.endpoint import Endpoint, parse_endpoint

# Of one node: more cost every confirm more than they are worth.
DISKS_MAX = 9
DEFAULT_BIND = ("127.0.0.1", "::1")


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
    """All settings of a node. Frozen: a broker never changes its settings while it runs."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="AMQPD_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        # Compose files pass AMQPD_X= for "not set".
        env_ignore_empty=True,
    )
    _config_file: Path | None = PrivateAttr(default=None)

    @property
    def config_file(self) -> Path | None:
        """The file that some of them are from, if there is one."""
        return self._config_file

    def __eq__(self, other: object) -> bool:
        """Where they are from makes no difference."""
        return isinstance(other, Settings) and self.__dict__ == other.__dict__

    def read_from(self, file: Path | None) -> Settings:
        """These, with the file that they were read from."""
        self._config_file = file
        return self

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
    events: EventsSettings = EventsSettings()
    http: HttpSettings = HttpSettings()
    otel: OtelSettings = OtelSettings()

    # What this broker is called in messages, traces and `amqpd status`: RabbitMQ's nodes are called name@host.
    # Without a host it is that of the first start, which the data directory keeps. Of a node alone it is for people,
    # and may be changed at any start; in a cluster nodes are counted by it.
    node_name: NodeName = Field(default="amqpd", validate_default=True)
    data_dir: Place = Field(default_factory=default_data_dir)
    # Several directories in its place, each on a disk of its own: what more than half of them have is safe. data_dir
    # is the first of them.
    data_dirs: Places = ()
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

    # HOST:PORT for other nodes of the cluster, which keep copies of queues here. Empty: this node keeps none, and
    # nobody keeps any for it.
    cluster_listen: Listening = ""
    # Where others reach it, if that is not cluster_listen: that one is every interface, or behind a translation.
    cluster_advertise: Reachable = ""
    # What fails together with this node (a rack, a zone): copies are in different ones while there are several.
    # Empty: nothing else does.
    cluster_label: Label = ""
    # Where it is on the network.
    cluster_region: Label = ""
    # How nodes prove to each other who they are; without either, cluster_listen has to be loopback. PEM: the
    # authorities that nodes' certificates are checked against, this node's own certificate, which names it
    # (docs/clustering.md), and its key, if that is not in the certificate's file.
    cluster_tls_ca: Place | None = None
    cluster_tls_certificate: Place | None = None
    cluster_tls_key: Place | None = None
    # The same secret on all nodes, of at least 16 bytes, in a file that others cannot read, or as it is. Messages are
    # then authenticated, and not encrypted.
    cluster_secret_file: Place | None = None
    cluster_secret: SecretStr = SecretStr("")
    # Copies of each queue, on different nodes: one of three may be lost, or two of five. More than 9 cost every
    # confirm more than they are worth.
    cluster_copies: Annotated[Count, Field(ge=1, le=9), AfterValidator(require_odd)] = 3
    # A node that the store has not heard from for so long is gone for the others. etcd counts whole seconds, and
    # grants no less than 2 with its defaults.
    cluster_lease_s: Seconds = Field(default=2.0, ge=2, le=60)
    # A node whose port refuses connections is taken for dead at once, and not when its time has passed. A firewall
    # can do that to a node that lives: some messages are then delivered twice.
    fast_takeover: bool = False
    # Leaders that failovers piled up on one node go to others by themselves, four a minute. An operator who moves
    # them by hand, at a time of day that suits clients, turns it off.
    cluster_rebalance: bool = True
    # Clients of this node may use queues that other nodes lead. Direct replies do not go from node to node yet, so it
    # is off until they do (docs/clustering.md).
    cluster_remote_queues: bool = False

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
    def implies_host(self) -> bool:
        """The host in `node_name` is this machine's, since nobody said it."""
        return isinstance(self.node_name, ImpliedHost)

    @property
    def audit_node(self) -> str:
        """What the audit log calls this broker. Until there was `node_name` it was the machine's name: a log that was
        begun under that goes on."""
        _, _, host = self.node_name.partition("@")
        machine = socket.gethostname() if host == host_name() else host
        return self.audit.node or (self.node_name if "node_name" in self.model_fields_set else machine)

    @property
    def published_deaths(self) -> bool:
        """As RabbitMQ before 4.0, if it says that it is one; see `queues/deadletters.py`."""
        return self.server_version.startswith("3.")

    @model_validator(mode="before")
    @classmethod
    def _first_data_dir(cls, values: Any) -> Any:
        """data_dirs alone says which one data_dir is."""
        several = split_commas(values.get("data_dirs", ())) if isinstance(values, dict) else ()
        if several and isinstance(several, list | tuple) and "data_dir" not in values:
            return {**values, "data_dir": several[0]}
        return values

    @property
    def directories(self) -> tuple[Path, ...]:
        """All data directories, one at least."""
        return self.data_dirs or (self.data_dir,)

    @model_validator(mode="after")
    def _directories_fit_together(self) -> Settings:
        if self.data_dirs and self.data_dirs[0] != self.data_dir:
            raise ValueError("data_dir and data_dirs are both set: set one of them")
        if len(self.data_dirs) > DISKS_MAX:
            raise ValueError(f"data_dirs has {len(self.data_dirs)} directories, and {DISKS_MAX} is the most")
        if len(set(self.data_dirs)) < len(self.data_dirs):
            raise ValueError("data_dirs has a directory twice: each is to be on a disk of its own")
        return self

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
    def _http_fits_together(self) -> Settings:
        if self.http.tls and not self.tls.enabled:
            raise ValueError("http.tls is set without tls.certificate: name one, or leave TLS off")
        open_ports = {"port": self.port * self.plain_listener, "tls.port": self.tls.port * self.tls.enabled}
        for name, port in open_ports.items():
            if self.http.enabled and self.http.port == port != 0:
                raise ValueError(f"{name} and http.port are both {port}: give each listener its own")
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

    @model_validator(mode="after")
    def _cluster_fits_together(self) -> Settings:
        if not self.cluster_listen:
            others = ["cluster_advertise", "cluster_tls_ca", "cluster_tls_certificate", "cluster_tls_key"]
            others += ["cluster_secret_file", "cluster_secret"]
            if alone := [name for name in others if getattr(self, name)]:
                raise ValueError(f"{alone[0]} is set without cluster_listen: this node listens for no others")
            return self
        if not self.cluster_store:
            raise ValueError("cluster_listen is set without cluster_store: say in which etcd the cluster meets")
        if not self.cluster_advertise and parse_endpoint(self.cluster_listen).is_every_interface:
            raise ValueError(
                "cluster_listen is every interface: say in cluster_advertise at which address others reach this node"
            )
        if self.cluster_tls_key is not None and self.cluster_tls_certificate is None:
            raise ValueError("cluster_tls_key is set without cluster_tls_certificate: set both, or neither")
        if (self.cluster_tls_ca is None) != (self.cluster_tls_certificate is None):
            raise ValueError(
                "cluster_tls_ca and cluster_tls_certificate: set both, or neither; both ends show a certificate"
            )
        if self.cluster_secret_file is not None and self.cluster_secret:
            raise ValueError("cluster_secret and cluster_secret_file are both set: set one of them")
        return self

    @property
    def cluster_address(self) -> Endpoint | None:
        """Where others reach this node; None: nowhere. A port 0 is to be replaced by the one that was bound."""
        where = self.cluster_advertise or self.cluster_listen
        return parse_endpoint(where) if where else None

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
