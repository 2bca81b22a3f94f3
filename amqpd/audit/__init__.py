"""The audit log: what happened to every message, and who did what.

The walk: queues and channels tell their `book` and the `recorder`, which put fixed-width records into the buffer of
`spool`; the pump has `sink` write it to the spool's file before it sends the confirms of the same tick (what nobody
may rely on, at the end of its turn); a thread turns finished files into Parquet (`files/writer`, `files/parquet`,
`files/columns`). `acts` are what people do, `coverage/counts` the figures of a minute; `coverage/anchors` say what
stands in the queues, `coverage/coverage` how much is recorded of each queue (its level,
`amqpd.vocabulary.audit_levels`), `epochs` which start of the broker, or which leader's epoch, a message is from.

docs/audit.md is the contract with readers of the files.
"""
