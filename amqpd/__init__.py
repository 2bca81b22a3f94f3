"""amqpd: an AMQP 0-9-1 broker.

The walk, from socket to disk to consumer, one sentence a room (ARCHITECTURE.md has more):

`__main__`, `commands/`  the command line; `config` and `config_sources` are its settings.
`broker`      builds all rooms, wires them, and ends them in order; `services` answers what the core asks.
`pump`        is the one task that moves client bytes; `tls_stream` is TLS inside it.
`connection`  is the protocol from its `handshake` to close; `liveness` is its clock, `intake` says why it waits.
`kernel/`     takes runs of publishes out of received bytes and encodes deliveries: what runs for each message.
`channels`    keeps order, tags and routes; `methods/` does what each method says; `content`, `consumers`, `confirms`,
              `unacked`, `transaction` are its parts.
`exchanges/`  say which queues a message goes to.
`queues/`     keep messages in order, in memory and on disk, and hand them out; `congestion` slows who is too fast.
`journal/`    gathers what must be durable, commits it in groups, and reports one number back.
`topology/`   is what exists, and the metadata store that it comes back from.
`audit/`      writes down what happened to every message, and who did what; `amqpd_spark` (`spark/`) adds it up.
`security/`   says who someone is and what they may do.
`node`        is what connections share, and the end of a tick.
`compiled`    chooses between the compiled rooms and the plain ones, which are the same.

Not here: benchmarks (`bench/`), black-box tests (`tests/clients/`), examples (`examples/`).
"""

import sys
from importlib.metadata import PackageNotFoundError, version

from amqpd.compiled import KernelError, install

try:
    # Before any other room is imported: it decides from where.
    KERNEL, KERNEL_REASON = install()
except KernelError as error:
    sys.exit(f"amqpd: {error}")

try:
    __version__ = version("amqpd")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"
