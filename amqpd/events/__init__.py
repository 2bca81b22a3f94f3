"""The event exchange `amq.rabbitmq.event`: what happens in the broker, as messages.

The walk: `exchange.py` is told of everything and publishes it when somebody has bound a queue; `changes.py` says
which events a change of the topology is, `sessions.py` what is said of connections, channels and consumers;
`messages.py` writes it as RabbitMQ does.
May import: `amqpd.publishing` and what is below it. Pure.
Not here: the audit log, which is complete and durable (`amqpd.audit`); copies of messages (`publishing/firehose.py`).
"""
