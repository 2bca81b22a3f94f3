"""The way of a publish: checked, routed, rewritten, entered into queues, accounted for; and of what publishes itself
again: dead letters, delayed messages, replies, traces.

The walk: `publish.py` checks, `routing.py` finds the queues, `acceptance.py` enters them.
May import: `amqpd.session` and what is below it. Pure.
Not here: what a queue does with it (`amqpd.queues`), when a confirm is sent (`amqpd.session`).
"""
