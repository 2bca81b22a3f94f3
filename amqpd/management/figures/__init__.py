"""What there is and how much of it: rows, sums, samples over time.

`inventory.py` has a row for each thing, `queue_facts.py` all that is known of one queue, `queue_names.py` names in
order; `totals.py` has sums over queues, `overview.py` and `node_facts.py` the node at a glance. `sampling.py` looks
again and again, and `samples.py` keeps what it saw; `recent.py` keeps the last of what goes by.
May import: `amqpd.node` and what is below it. Shell.
Not here: fields of the HTTP API and metrics (`admin/amqpd_admin`).
"""
