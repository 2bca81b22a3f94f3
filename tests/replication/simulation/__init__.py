"""A cluster in one thread: the forwarder as it ships, with a simulated network, disks, metadata store and clients.

The walk: `run.py` draws a cluster and its faults from a seed, and runs it: first with faults (safety), then without
(liveness). `cluster.py` holds what there is, `faults.py` and `scenarios.py` hurt it. `process.py` is one incarnation
of a forwarder: `Forwarder`, `JournalBuffer`, `JournalWriter`, `OwnDisk` and the queues' `Messages`, put together as
the broker does; `starting.py` is how it becomes a member; `machine.py` is what outlasts it. They stand on
`network.py`, `links.py`, `store.py` and a disk (`disk.py`, or in its place `real_disk.py`: SQLite's), each with the
faults that the real ones have; `tasks.py` runs what ships as trio tasks. `queue.py` has the clients. `law.py` says
what must hold, `bugs.py` and those beside it plant mistakes that the law has to find; `planted.py` is their table,
with the seeds. Operators ask for other sets and leaders meanwhile (`Faults.desired_set`), which
`amqpd.cluster.set_changes` carries out. Simulated: sockets, threads, time, the store and its watch, channels. A seed
is a run.

After TigerBeetle's VOPR (two phases, options drawn for each seed) and FoundationDB (the test of the tests:
`Clock.counts` says what happened, and a kind of event that never did was not tested).
"""
