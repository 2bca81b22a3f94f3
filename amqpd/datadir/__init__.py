"""The data directory as a whole: locked, opened as a pair of databases, watched, with space held for the next start.

May import: `amqpd.journal`, `amqpd.topology`, `amqpd.storage`. Shell.
Not here: what each of the files holds (`amqpd.journal`, `amqpd.topology.metadata`).
"""
