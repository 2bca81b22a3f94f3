"""A cluster in one thread: the replication modules as they ship, with a simulated network, disks and metadata store.

The walk: `run.py` draws a cluster and its faults from a seed, and runs it: first with faults (safety), then without
(liveness). `cluster.py` holds what there is, and makes the faults. `node.py` is a forwarder around the real modules,
`taking_over.py` what it does to become a home. They stand on `network.py`, `disk.py` and `store.py`, each with the
faults that the real ones have. A forwarder knows of another one what that has told it. `law.py` says what must hold,
`bugs.py` plants mistakes that the law has to find.
Simulated: everything but `amqpd.replication`. There is no wall clock and no thread: a seed is a run.

After TigerBeetle's VOPR (two phases, options drawn for each seed) and FoundationDB (the test of the tests:
`Counts` says what happened, and a kind of event that never did was not tested).
"""
