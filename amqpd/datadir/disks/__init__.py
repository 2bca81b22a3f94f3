"""The journal and the definitions of one node on several data directories, each on a disk of its own.

A node with one data directory uses nothing of it. `standing.py` and `election.py` are pure.
Not here: one disk (`amqpd.journal.sqlite`), replicas on other nodes (`amqpd.replication`).
Why it is so: docs/decisions/several-disks.md, docs/decisions/definitions-in-one-order.md.
"""
