"""What an operator can see and do, by the command line, by HTTP, from another node of the cluster.

The walk: an operator (`operators.py`) requests something of a running node (`running.py`). `queues.py`,
`exchanges.py`, `bindings.py`, `connections.py`, `traces.py` and `alarms.py` are what is done to one thing;
`metadata/` changes what is kept beside queues, `messages/` looks at what is in them, `damage/` is about what is
broken or has lost its queue. `figures/` says what there is and how much of it, `why/` the same in words. `control/`
is the control socket, `across_nodes/` what nodes tell each other, `face.py` a way in that the broker does not know,
such as HTTP; `assembly.py` puts it together. Long walks go in steps (`pacing.py`), and each refusal is one of
`errors.py`.
May import: `amqpd.node` and what is below it. Shell.
Not here: the command line (`amqpd.commands`), HTTP (`admin/amqpd_admin`), the protocol.
"""
