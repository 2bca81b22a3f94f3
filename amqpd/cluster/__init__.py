"""Several forwarders as one cluster: who is there, who is the home of which source, and the links between them.

The walk: `records.py` is what the metadata store has of the cluster, `roster.py` what a forwarder has heard of it,
`directory.py` keeps that up to date and makes this forwarder a member; `swaps.py` puts records. `placement.py`
chooses replica sets and homes. `overview.py` is what an operator sees of it.
May import: `amqpd.errors`, `amqpd.replication`, `amqpd.topology.metadata`.
Not here: the log of a source (`amqpd/replication/`), the store (`topology/metadata/`).
"""
