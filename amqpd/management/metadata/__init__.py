"""What is kept beside queues: users, permissions, virtual hosts, policies, parameters, limits; and all of it as one
document.

`interface.py` is how use cases read and change it; `live.py` does so in a running broker, `stored.py` on a data
directory without one. A module for each kind of thing has its use cases; `definitions.py` compares all of it with a
document and makes it so.
May import: the metadata store. Shell.
Not here: the store (`amqpd.topology.metadata`), the form of documents (`amqpd.definitions`).
"""
