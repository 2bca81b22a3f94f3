"""The audit log: what happened to every message, and who did what.

The walk: queues and channels tell their `book` and the `recorder`, which put fixed-width records into the `spool`
buffer; the pump has `writer` write it to the spool's file before it sends the confirms of the same tick (what
nobody may rely on, at the end of its turn); a thread turns finished files into Parquet (`parquet`, `columns`).
`acts` are what people do, `counts` the figures of a minute, `anchors` say what stands in the queues, `levels` how
much is recorded where, `epochs` which start of the broker a message is from.

docs/audit.md is the contract with readers of the files.
"""
