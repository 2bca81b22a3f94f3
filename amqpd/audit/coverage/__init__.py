"""Which queues the audit log covers: the level of each, what stands in it when its book begins, figures instead.

May import: `amqpd.queues` and what is below it. Pure.
Not here: what is recorded of a message (`amqpd.audit`), files (`audit/files/`).
"""
