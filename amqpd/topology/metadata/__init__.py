"""The metadata store: where the topology is kept, as keys with revisions.

The walk: `store.py` is the contract; `sqlite/` and `etcd/` implement it. `sync.py` turns changes of the topology into
transactions of the store, and its events into applied changes; `codec.py` is the form of the keys and values,
`bootstrap.py` what a new store begins with.
May import: `amqpd.topology`, `amqpd.security`, `amqpd.storage`. Shell.
Not here: what the topology means (`amqpd.topology`).
"""
