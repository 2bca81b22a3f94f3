"""The pipeline on amqpd's audit log: PySpark jobs that account for every message.

What comes in: the folder of Parquet files that a broker writes (`docs/audit.md` has the schema). What goes out:
partitioned Parquet tables, and a page for people.
Rules: DataFrames only; nothing runs in Python for each row, and nothing collects per-message data to the driver.
Not here: writing the log (`amqpd/audit/`).
"""
