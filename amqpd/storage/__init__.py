"""What the journal and the metadata store share about files: how a log ends, what was promised, how to close.

What comes in: paths of SQLite databases. What goes out: facts about their files.
Rules: 1. Nothing here knows what a database holds. 2. Looking at a file changes nothing.
Not here: tables, transactions (`amqpd.journal`, `amqpd.topology`).
"""
