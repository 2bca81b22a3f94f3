"""What others share about files: how a log ends, what was promised, how to close, whether a file is private.

What comes in: paths, most of SQLite databases. What goes out: facts about the files.
Rules: 1. Nothing here knows what a database holds. 2. Looking at a file changes nothing.
Not here: tables, transactions (`amqpd.journal`, `amqpd.topology`).
"""
