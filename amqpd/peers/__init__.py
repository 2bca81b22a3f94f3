"""What travels between nodes: the messages, their bytes, and the links that they go over.

The walk: `messages.py` has every message as a value; replication and operators' queries are families of them.
`entry.py` is what replication copies. `encoding.py` has the bytes of a message, `formats.py` of what is in it.
`links/` are the connections: sockets, TLS, handshake, proofs, framing.
Rules: 1. Nothing here knows what a message makes a node do: arrows go from those who act on messages to here. 2. All
but `links/` is pure: no I/O, no clock, no randomness.
May import: nothing of amqpd; `links/`: `amqpd.errors`, `amqpd.vocabulary`.
Not here: what a leader and a replica do (`amqpd.replication`), who the peers are (`amqpd.cluster`).
"""
