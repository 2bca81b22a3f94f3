"""How a log-in goes: places, attempts, passwords and their hashes.

May import: `amqpd.security`, `amqpd.topology`. Shell: chance, and threads for the hashes.
Not here: what a user may do (`security/access.py`).
"""
