"""The tables of the settings: values that belong together and are off, or as they are, together.

What comes in: values by name. What goes out: immutable values, checked.
Rules: those of `config.py`; a table's name stands before those of its settings: `tls.port`, `AMQPD_TLS_PORT`.
Not here: what holds between a table and other settings (`config.py`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from amqpd.setting_types import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Collector,
    Count,
    Hosts,
    Level,
    Names,
    Place,
    Port,
    Seconds,
    refuse_long,
)


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


class EventsSettings(BaseModel):
    """The table `[events]`: what happens in the broker, as messages (docs/events.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Off, as RabbitMQ's plugin is unless somebody enables it: what is published names users, addresses and queues to
    # everybody who may read the exchange.
    exchange: bool = False
    # Where the exchange is; made if it does not exist. RabbitMQ's default virtual host.
    vhost: Annotated[str, Field(min_length=1), AfterValidator(refuse_long)] = "/"

    @property
    def published_in(self) -> str | None:
        """The virtual host; None: nowhere."""
        return self.vhost if self.exchange else None


class HttpSettings(BaseModel):
    """The table `[http]`: the management API (docs/http.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True
    # Empty: where clients connect (bind).
    bind: Names = ()
    # 15672 is RabbitMQ's. 0: the system chooses (tests).
    port: Port = 15672
    # With the certificate of [tls], and that alone.
    tls: bool = False
    # A browser has up to six, a monitoring tool one or two. Each costs a descriptor and some 100 kB.
    connections_max: Annotated[Count, Field(ge=1, le=10_000)] = 500
    # Of one request. RabbitMQ's default; definitions are the largest.
    body_bytes_max: Annotated[Bytes, Field(ge=1 * KIB, le=512 * MIB)] = 20_000_000
    # Names under which browsers may ask, beside this machine's own: that of a proxy in front, for example.
    hosts: Hosts = ()
    # RabbitMQ's are open to everybody who reaches its port for them. Here they are on the port of the API, and name
    # queues, users' connections and virtual hosts.
    metrics_open: bool = False


class OtelSettings(BaseModel):
    """The table `[otel]`: spans of traced messages for OpenTelemetry (docs/tracing.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # It needs the extra amqpd[otel].
    enabled: bool = False
    # A collector that takes OTLP over HTTP. Empty: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT,
    # or http://localhost:4318.
    endpoint: Collector = ""
    # What may wait for the collector; more is dropped. The SDK's default: some 4 MB, and a second of 500 messages.
    # It sends up to 512 together.
    spans_max: Annotated[Count, Field(ge=512, le=100_000)] = 2048
