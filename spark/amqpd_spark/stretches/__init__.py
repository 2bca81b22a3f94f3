"""The log's rows as columns of numbers, in Spark's Python workers.

What comes in: files or rows of the log. What goes out: DataFrames of what a function makes of their columns.
Rules: 1. A function sees Arrow tables of some 200,000 rows and works with numpy on whole columns; no row is a Python
object. 2. A stretch is never made messages of: stretches are cut at each other's edges (`sweep.py`).
Not here: what the columns mean to a job (`books/`, `latencies.py`, `ages.py`).
"""
