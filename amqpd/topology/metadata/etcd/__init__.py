"""The metadata store in an etcd cluster, over etcd's JSON gateway.

The walk: `store.py` implements the contract. `opening.py` makes it, ends what an earlier incarnation left, and begins
another generation of one that went back, `reading.py` reads everything, `feed.py` follows etcd's watch.
`transactions.py` makes requests of the contract's transactions, `turn.py` sends them one after the other and finds
out what became of one whose answer was lost, `patience.py` says for how long, and tells that it waits. `leases.py`
keeps leases, and the keys that hold them. `gateway.py` is the client, `messages.py` the form of requests and answers,
`layout.py` which keys there are in etcd.
May import: `amqpd.topology.metadata`. Shell.
Not here: which etcd, and how it is asked to trust us (`process/cluster_store.py`).
"""
