"""Links: connections between forwarders, and the messages over them.

The walk: `links.py` has all of them. `dialing.py` keeps one connection to each peer, `accepting.py` takes those in
that peers dial; `handshake.py` says who may stay. `link.py` is one of them, with its bounds: `framing.py` is what
waits to be sent, and cuts what came into messages, `stream.py` moves the bytes. `sockets.py` and `tls.py` are what
these need of the system; `troubles.py` says why there is no link.
Rules: 1. What a forwarder asks goes over the connection that it dialed; its peer answers over the same. So there are
two between any two forwarders, and neither waits for the other; and up to two more for data, so that a slow client
delays no commit. 2. A connection that breaks takes with it what was on
its way: those who use it go on from what was answered. 3. Everything that waits here has a bound.
May import: `amqpd.errors`, `amqpd.vocabulary`, `amqpd.peers`.
Not here: what messages mean and make a forwarder do, who the peers are.
"""
