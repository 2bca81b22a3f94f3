"""What `generate` is made of: made-up traffic of a broker, of any size.

What comes in: how much, over how long, how mixed. What goes out: rows of the log.
Rules: every number follows from a stretch's place by arithmetic, so rows are made in any order by any number of
tasks, without a shuffle, and the same seed makes the same log.
Not here: the command (`generate.py`).
"""
