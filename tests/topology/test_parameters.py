"""What an exchange is to do with what no queue takes; alternate exchanges by policy on live exchanges."""

from __future__ import annotations

from amqpd.topology.parameters import unroutable
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Delete,
    ExchangeRecord,
    ParameterRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    VhostRecord,
)
from tests.topology.samples import routed

DEFAULT = ParameterRecord("/", "unroutable", "default", "nack")
POLICY = PolicyRecord("/", "p", "^orders", "exchanges", {"unroutable": "lost"})


def test_a_policy_goes_before_the_virtual_hosts_default() -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/"))])
    vhost = topology.vhosts["/"]
    assert unroutable(vhost, "orders") is None
    topology.apply([Put(DEFAULT), Put(POLICY)])
    assert (unroutable(vhost, "orders"), unroutable(vhost, ""), unroutable(vhost, "other")) == (
        "lost",
        "nack",
        "nack",
    )
    topology.apply([Delete(DEFAULT.key)])
    assert (unroutable(vhost, "orders"), unroutable(vhost, "")) == ("lost", None)


def test_a_default_that_is_no_text_is_none() -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), Put(ParameterRecord("/", "unroutable", "default", 1))])
    assert unroutable(topology.vhosts["/"], "x") is None


def test_an_alternate_exchange_by_policy_works_on_a_live_exchange_and_the_argument_goes_before_it() -> None:
    topology = Topology()
    plain, with_argument = (
        ExchangeRecord("/", "orders", "direct"),
        ExchangeRecord("/", "other", "direct", arguments={"alternate-exchange": "by argument"}),
    )
    catching = [
        each
        for name in ("by policy", "by argument")
        for each in (
            ExchangeRecord("/", name, "fanout"),
            QueueRecord("/", name, 1),
            BindingRecord("/", name, name, "queue", ""),
        )
    ]
    topology.apply([Put(VhostRecord("/")), Put(plain), Put(with_argument), *map(Put, catching)])
    vhost = topology.vhosts["/"]
    assert (routed(vhost, "orders", "k"), routed(vhost, "other", "k")) == ((), ("by argument",))
    policy = PolicyRecord("/", "p", "^o", "all", {"alternate-exchange": "by policy"})
    topology.apply([Put(policy)])
    assert (routed(vhost, "orders", "k"), routed(vhost, "other", "k")) == (("by policy",), ("by argument",))
    topology.apply([Put(ExchangeRecord("/", "oranges", "direct"))])
    assert routed(vhost, "oranges", "k") == ("by policy",)
    topology.apply([Delete(policy.key)])
    assert (routed(vhost, "orders", "k"), routed(vhost, "oranges", "k")) == ((), ())
