"""Several nodes as one cluster: who is there, who is the leader of which source, and what that makes a node do.

The walk: `runner.py` runs a forwarder's place in the cluster. `forwarder.py` is that place: the sources that it
leads (`led_sources.py`, `led_replica_set.py`), those that it follows (`followed_sources.py`), those that it takes
over (`takeovers.py`, and when: `succession.py`); all of it is pure, and reaches sockets, disk and store by
`shell.py`. `directory.py` is the store's half: `records.py` is what the metadata store has of the cluster,
`roster.py` what a forwarder has heard of it, `swaps.py` how records of sources are changed. `choosing.py` finds
sources for queues and sets for sources; `overview.py` is what an operator sees, `queries.py` what operators of one
node ask of the others. The connections between forwarders are `amqpd.peers.links`; `data_links.py` has those that
sessions of remote queues go over, with turns for each (`session_turns.py`).
May import: `amqpd.replication`, whose machines it runs; the node, the journal and the store, which it joins.
Not here: what is decided about copies (`amqpd.replication`), a queue's own behaviour (`amqpd.queues`), the metadata
store's contract (`amqpd.topology.metadata`).
"""
