"""What an exchange of the type x-recent-history kept goes to a new binding of it.

What comes in: a binding, and runs. What goes out: the runs, oldest first, in the queue that is bound, or in those
that the exchange that is bound leads to.
Rules: 1. It may be many messages, and go through very many exchanges: in steps. 2. A queue whose leader is another
node gets nothing from here: each node keeps what passed its own exchanges, in memory. Nor does one whose copies are
too far behind. The log says so, once for a binding.
Not here: what is kept (`histories.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from amqpd.exchanges import Message
from amqpd.flow.turns import COPY_WORK
from amqpd.kernel import Run
from amqpd.message.rewriting import run_names
from amqpd.publishing.offering import offer
from amqpd.publishing.ports import PublishingNode
from amqpd.publishing.routing import COPIES_A_STEP, awaited_of, in_steps, named_in_steps, of_now
from amqpd.queues.delayed import AWAY_REASON
from amqpd.vocabulary.records import BindingRecord

# What a message takes that is given to a binding, beside its copies (`flow/turns.py`).
GIVE_WORK = 4


def replay(node: PublishingNode, binding: BindingRecord, runs: tuple[Run, ...]) -> Iterator[None]:
    """For `Dispatching.carry_out`."""
    told = False
    for run in runs:
        properties = node.properties.read(run.properties, True)
        names: tuple[str, ...] = (binding.destination,)
        contents = node.topology.vhosts.get(binding.vhost)
        if contents is None:
            return
        if binding.destination_type == "exchange":
            keys = (run_names(run)[1], *properties.routing_keys)
            message = Message(keys, properties.headers, run.properties, node.chance, node.serves)
            steps = contents.walk(binding.destination, message)
            names = yield from in_steps(node, steps)
        publication = None
        if node.audit.active:
            exchange, routing_key = binding.source, run_names(run)[1]
            publication = node.audit.begin_own(binding.vhost, exchange, routing_key, "history", run.count, properties)
        for at in range(0, len(names), COPIES_A_STEP):
            queues = yield from in_steps(node, named_in_steps(node, binding.vhost, names[at : at + COPIES_A_STEP]))
            queues = of_now(node, binding.vhost, queues)  # whatever was done since the last step
            node.work_left -= GIVE_WORK + COPY_WORK * len(queues)
            offer(node, [queue for queue in queues if not queue.lane.lagging], run, properties, publication)
            if not told and (away := awaited_of(queues)) is not None:
                told = True
                node.log(
                    "history_not_given",
                    vhost=binding.vhost,
                    exchange=binding.source,
                    queue=away.record.name,
                    reason=AWAY_REASON,
                )
            yield
        if publication is not None:
            node.audit.end(publication, run.body_size, bool(names))
