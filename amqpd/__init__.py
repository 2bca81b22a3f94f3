"""amqpd: an AMQP 0-9-1 broker.

The walk, from socket to disk to consumer, one sentence each (ARCHITECTURE.md has more):

`__main__`, `commands/`  the command line; `config` is its settings.
`broker`      builds all components, wires them, and ends them in order; `process/` is the process around them.
`pump`        is the one task that moves client bytes; `transport/` is sockets and TLS.
`connection`  is the protocol from the first bytes to close, `channels` one channel of it: order, tags and routes;
              `session/` has the parts of both, and `methods/` does what each method says.
`kernel/`     takes runs of publishes out of received bytes and encodes deliveries: what runs for each message.
`publishing/` is the way of a publish, and of what is published again.
`exchanges/`  say which queues a message goes to.
`queues/`     keep messages in order, in memory and on disk, and hand them out.
`journal/`    gathers what must be durable, commits it in groups, and reports what is stored and what is committed.
`topology/`   is what exists, and the metadata store that it comes back from.
`audit/`      writes down what happened to every message, and who did what; `amqpd_spark` (`spark/`) adds it up.
`security/`   says who someone is and what they may do.
`flow/`       says whether a publisher waits: limits, quotas, congestion, alarms, disk space; whose turn it is.
`node/`       is what connections share, and the end of a tick.
`management/` is what an operator can see and do.
`compiled`    chooses between the compiled modules and the plain ones, which are the same.

Not here: benchmarks (`bench/`), black-box tests (`tests/clients/`), examples (`examples/`).
"""

import sys
from importlib.metadata import PackageNotFoundError, version

from amqpd.compiled import KernelError, install

try:
    # Before any other module is imported: it decides from where.
    KERNEL, KERNEL_REASON = install()
except KernelError as error:
    sys.exit(f"amqpd: {error}")

try:
    __version__ = version("amqpd")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+checkout"
