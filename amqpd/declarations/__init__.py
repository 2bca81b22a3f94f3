"""Exchanges, queues and bindings as they are asked for: checks, equivalence, limits, and the change that is
submitted.

May import: `amqpd.node` and what is below it. Pure.
Rules: 1. The same for a client of the protocol and for an operator: who asks is an `Asker`. 2. Refusals are pamqp's
errors with RabbitMQ's words, in RabbitMQ's order. 3. What changes the topology is answered after the change has come
back.
Not here: methods and their answers (`amqpd.methods`), an operator's use cases (`amqpd.management`), the changes that
go along (`amqpd.topology.plans`).
"""
