"""The metadata store in an etcd cluster, over etcd's JSON gateway.

The walk: `store.py` implements the contract; `transactions.py` carries out one transaction at a time, and finds out
what became of one whose answer was lost; `leases.py` keeps leases and the keys that hold them; `feed.py` follows
etcd's watch. `gateway.py` is the client, `messages.py` the form of requests and answers, `layout.py` which keys there
are in etcd.
May import: `amqpd.topology.metadata`. Shell.
Not here: where etcd is and how it is asked to trust us (`amqpd.config`).
"""
