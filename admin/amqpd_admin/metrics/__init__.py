"""Metrics for Prometheus: what is there and what was counted, under RabbitMQ's names, and ours beside them.

What comes in: the node, while somebody asks. What goes out: families of samples, and their text.
From the numbers outwards: `node_sums.py` (one walk over connections and queues, added up), `messages.py` (what
happened to messages), `churn.py` (what came and went), `node.py` (the process, its disk, alarms), `ours.py` (what
RabbitMQ has no name for), `queues.py`, `channels.py` and `exchanges.py` (a sample for each thing), `endpoints.py`
(which families are where), `text.py` (the text, in pieces).
Rules: 1. Each value is true: what the broker does not count is left out, and docs/metrics.md says why. 2. A counter
never goes back while the broker runs. 3. Nothing is computed while nobody asks, and the broker goes on after
every fifty things or hundred samples.
Not here: who may ask (`routes/metrics.py`), counting (`amqpd/node/totals.py`, `amqpd/queues/facts.py`).

Source for names: https://www.rabbitmq.com/docs/prometheus; rabbitmq_prometheus of RabbitMQ, `src/collectors/`.
"""
