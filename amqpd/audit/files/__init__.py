"""The files of the audit log: the spool on disk, its conversion to Parquet, retention, what is damaged.

May import: `amqpd.audit`, `amqpd.config`. Shell.
Not here: what is recorded (`amqpd.audit`).
"""
