"""The brokers of a run: addresses that the caller names, and private ones that the bench starts and stops.

What comes in: flags of the command line. What goes out: `Broker` values, and private processes as context
managers. Rules: 1. a private broker listens on loopback only, on a port of its own, with all its files under
one temporary directory; 2. it is ready when an AMQP handshake succeeds; 3. it is stopped, by its own process
group, when its context ends, however that happens.
Not here: running scenarios (`bench/runner.py`).
"""

from bench.brokers.base import Broker, PrivateBroker, file_system_of
from bench.brokers.clusters import AmqpdCluster, RabbitmqCluster
from bench.brokers.private_amqpd import PrivateAmqpd
from bench.brokers.private_rabbitmq import PrivateRabbitmq

__all__ = [
    "AmqpdCluster",
    "Broker",
    "PrivateAmqpd",
    "PrivateBroker",
    "PrivateRabbitmq",
    "RabbitmqCluster",
    "file_system_of",
]
