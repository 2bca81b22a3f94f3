"""Flow control: everything that makes a publisher wait, or refuses it because there is too much.

Which file answers which row of `docs/waiting.md`:

- memory and disk alarms, alarms of operators: `alarms.py` (what is on, and who said so); `process/alarms.py`
  measures.
- the journal is behind, majorities are far behind, numbers are short: `JournalBuffer.full_because`.
- the node is not current: `Alarms.set_current`, of what `cluster/currency.py` finds.
- a tick's share is used up: `turns.py`.
- the queue drains, and has too much in memory; its majority is far behind: `congestion.py`.
- no majority answers: `Intake.set_cut_off`, of what `cluster/` tells the node.
- its leader moves: `leader_moves.py`.
- a limit on its rate: `quotas.py`.
- a channel waits for an answer: `Channel.suspended`; a `tx.commit`: `session/holds.py`; its client does not read:
  `Connection.outbox_full`.
- refused at once: what does not fit on the disk (`disk_space.py`), what is begun and takes too much memory
  (`unfinished.py`), one connection, channel, queue or exchange too many (`client_counters.py`).

The one place where all of them are asked is `Intake.paused` (`session/intake.py`): it needs the connection, so it is
above this package.
May import: `amqpd.queues` and what is below it. Pure.
Not here: the limits themselves (`vocabulary/limits.py`, `topology/limit_keys.py`), why somebody waits, in words
(`management/why/`).
"""
