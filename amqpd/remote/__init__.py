"""Remote queues: clients of one node use queues that another node leads.

The walk: `messages.py` is what an edge (the node of the clients) and the leader of a source say to each other. The
edge's end is `edge.py`: it numbers operations and keeps them until they are decided (`operations.py`), and has
subscriptions with credit (`subscription.py`). The leader's end is `leader.py`: it has a mark, a session and the
subscriptions of each incarnation of an edge (`incarnation.py`); a subscription is a consumer of its queue
(`subscriber.py`). `claims.py` is what an edge says that its clients hold when a session begins, `handing.py` what
one leader passes to the next (`handed_bytes.py` has its bytes), `source.py` what the leader's end needs of a log and
of queues. `held.py` has deliveries as ranges, at both ends. `encoding.py` has the bytes of the messages,
`formats.py` those of what is in them; `contradictions.py` is what no honest peer says in a session, `endings.py` why
a subscription has ended.
A node has `edges.py`: an edge for each source that its clients use (`edge_source.py`), with credit from what their
consumers leave (`consumer.py`); and `leaders.py`: a leader for each source that it leads. Clients reach a remote
queue by its port (`queue.py`). `links.py` is what both ends need of the cluster; `figures.py` is what operators see.
Rules: docs/decisions/remote-protocol.md has them with their numbers. Built are 1 to 10, 12, 14, 16 to 19, 21, 24, 25,
27 to 29, 31 and 32; of 15 without conditional deletes, of 26 that what goes back unseen is not counted. Not built: 11
(a prefetch that several leaders share is lowered, but nobody says that it wants messages), 20 (ranks of consumers),
of 22 that dead letters between sources come once, 23 (tx.commit as one entry), 30 (auto-delete and `x-expires`).
May import: `amqpd.kernel`, `amqpd.vocabulary`, `amqpd.message`, `amqpd.peers`, `amqpd.journal`, `amqpd.audit`,
`amqpd.queues`. Pure: no I/O, no clock, no randomness; the time is an argument.
Not here: links (`amqpd.peers.links`), who leads what (`amqpd.cluster`), what channels ask (`queues/port.py`).
`tests/remote/simulation/` judges both ends together.
"""
