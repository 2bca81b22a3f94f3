"""Replication: several forwarders keep a copy of a source, and nothing confirmed is lost with one of them.

The walk: `peers/entry.py` is what is copied. A leader (`leader.py`) cuts entries into frames, one for all sources of
a replica set, and sends them to its peers, and to one that lacks something what it lacks (`catch_up.py`); `commit.py`
says what a majority holds. At a peer `receiver.py` takes the frames of one leader in, `replica.py` the entries of one
source, and votes: `log.py` compares. When a leader is lost, another member becomes the
leader by `take_over.py`.
Rules: 1. The order of entries is by (epoch, idx), never by idx alone. 2. A confirm waits for *committed*: a majority
of the replica set has it on disk, the leader among them, in the leader's own epoch. 3. An epoch has one leader; a
replica that voted for an epoch takes nothing of an older one.
May import: `amqpd.peers`, without its links. Pure: no I/O, no clock, no randomness; the time is an argument.
Not here: who is a leader (the metadata store decides that), sockets, and what entries mean (`amqpd.journal`).

After Raft (Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", 2014: log matching, commit of
the leader's own term), BookKeeper (fenced ledgers) and Ra (one log for many queues). The election is not here: the
metadata store's compare-and-swap names the leader, and voting makes that hold.
"""
