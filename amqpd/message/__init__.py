"""A message as it is between the wire and a queue: properties, what they claim, other headers before an old body.

May import: `amqpd.wire`, `amqpd.kernel`. Pure.
Not here: where it goes (`amqpd.publishing`), how queues keep it (`amqpd.queues`).
"""
