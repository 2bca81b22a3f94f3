"""What is asked to change in the topology: in which order it goes to the metadata store, and whose request it is.

What comes in: records to put and to remove, of clients and of the node itself. What goes out: transactions for the
store (`Services.submit`); answers, after they were applied; whom the audit log names.
Rules: 1. The client counters (`flow/client_counters.py`) count what is on its way too. 2. What is put into a
virtual host requires that it still exists. 3. A client's turn pays for what it asks for here: most of the work comes
later, when the change is applied. 4. Where other nodes take publishes, too, who asks is answered when all of them
know the change (`cluster/sync_point.py`); what waits behind it in the order does not wait for that.
Not here: the order itself (`topology/order.py`), what follows when it is applied (`node.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from amqpd.audit.acts import NODE, Acts
from amqpd.flow.client_counters import ClientCounters
from amqpd.flow.turns import Turns
from amqpd.node.cluster import Cluster
from amqpd.session.services import Resume, Services
from amqpd.topology.order import ChangeOrder, OrderedRequest, Owner, Removable
from amqpd.topology.state import Topology
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import BindingRecord, Change, Delete, Key, Put

# Checked, and encoded for the store. Applying it takes more, outside of the turn and in steps of its own. Turns that
# were shorter would make smaller commits, which cost more than what is committed.
CHANGE_WORK = 40


class Changes:
    """The changes of the topology that are asked for at one node, on their way to the metadata store. `by` in its
    methods: who asks for it; None: the node itself, or an operator who is no user."""

    def __init__(
        self,
        topology: Topology,
        services: Services,
        client_counters: ClientCounters,
        acts: Acts,
        turns: Turns,
        cluster: Cluster,
    ) -> None:
        self._services = services
        self._turns = turns
        self._client_counters = client_counters
        self._acts = acts
        self._cluster = cluster
        self._order = ChangeOrder(topology, self._submit_requests, services.bug)

    def submit(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = (), by: Owner = None
    ) -> None:
        """Make the changes in one transaction."""
        self._submit(changes, self._once_known(resume, by), requires, {by: changes})

    def bind(self, binding: BindingRecord, resume: Resume, by: Owner = None) -> None:
        """Make the binding."""
        self._order.bind(binding, self._once_known(resume, by), by)

    def remove(
        self,
        record: Removable,
        resume: Resume,
        condition: Callable[[], bool] = lambda: True,
        by: Owner = None,
    ) -> None:
        """Remove the record and what goes along with it."""
        self._order.remove(record, self._once_known(resume, by), condition, by)

    def _once_known(self, resume: Resume, by: Owner) -> Resume:
        """Nobody waits for what the node itself changes."""
        knowledge = self._cluster.knowledge
        if by is None or not knowledge.matters:
            return resume

        def known() -> None:
            resume(True)

        def applied(done: bool) -> None:
            if done:
                knowledge.when_known(known)
            else:
                resume(False)

        return applied

    def _submit_requests(
        self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key], requests: Sequence[OrderedRequest]
    ) -> None:
        """What goes along with one of several requests is nobody's."""
        asked: dict[Owner, list[Change]] = {}
        for request in requests:
            asked.setdefault(request.owner, []).append(Delete(request.record.key))
        only = next(iter(asked)) if len(asked) == 1 else None
        self._submit(changes, resume, requires, {only: changes} if len(asked) == 1 else asked)

    def _submit(
        self,
        changes: Sequence[Change],
        resume: Resume,
        requires: Iterable[Key],
        asked: Mapping[Owner, Sequence[Change]],
    ) -> None:
        vhosts = {change.record.key[1] for change in changes if isinstance(change, Put)}
        owner = ""
        for who, theirs in asked.items():
            if isinstance(who, Client):
                owner = who.id
                self._turns.charge(who, CHANGE_WORK * len(theirs))
            resume = self._acts.expect(theirs, NODE if who is None else who, resume)
        needed = [*requires, *(("vhost", name) for name in vhosts)]
        self._client_counters.submit(
            changes, resume, lambda done: self._services.submit(changes, done, needed, owner)
        )
