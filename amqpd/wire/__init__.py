"""Methods, field tables and their values, read from octets and written to them.

May import: nothing of amqpd. Pure.
Not here: publishes, deliveries and acknowledgements in bulk, which the kernel takes apart (`amqpd.kernel`); a
message's properties (`amqpd.message`).
"""
