"""Looks at a data directory that no broker uses, names every damage in it, and repairs what can be derived.

What comes in: a data directory whose lock is held. What goes out: findings; after a repair, a journal that opens.
Rules: 1. Looking changes no file. 2. A repair changes nothing before what it replaces is kept aside.
Not here: the command (`amqpd/commands/check.py`), what the broker does about damage by itself.
"""
