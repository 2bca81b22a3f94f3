"""The conformance suite: what AMQP 0-9-1 and RabbitMQ's extensions promise, asked of any broker over a socket.

`README.md` has the table of rules, and says how to run it.
"""
