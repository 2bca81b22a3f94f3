"""What is damaged, or has lost its queue: listed, exported, set aside, adopted.

`damaged_rows.py` is about rows in queues, and keeps their bytes; `orphan_operations.py` is about messages whose queue
is unknown.
May import: `amqpd.management.messages`, the data directory. Shell.
Not here: finding damage (`amqpd.scrub`, `amqpd.checking`).
"""
