"""What exists: virtual hosts, users, exchanges, queues, bindings, policies, as one value in memory.

The walk: `state.py` is that value, changed by small steps, with the routes (`routes.py`) that follow from it;
`order.py` puts changes that cross into one order; `policies.py`, `parameters.py` and `limit_keys.py` say what keys
mean. `metadata/` is the store that it comes back from.
May import: `amqpd.exchanges` and what is below it. Pure, except `metadata/`.
Not here: the queues' messages (`amqpd.queues`), routing with all that a node adds (`publishing/routing.py`).
"""
