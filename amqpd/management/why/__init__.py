"""Why things are as they are, in words: a queue, a connection (an alarm: `management/alarms.py`).

May import: `amqpd.management.figures`. Shell.
Not here: the figures themselves.
"""
