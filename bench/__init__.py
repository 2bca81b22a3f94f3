"""bench: a load generator for any AMQP 0-9-1 broker, and the runner that compares brokers with it.

The walk: `__main__` reads the command line, `session` carries it out; `brokers/` starts a private RabbitMQ or
amqpd, or takes an address; `runner` lets the brokers take turns through `scenarios/`; a scenario declares its
topology (`topology`), starts worker processes (`crew` here, `worker` over there) that play `roles/`, and checks the
counts; the roles speak raw frames: `encode` makes publishes and acks, `count` counts deliveries, `confirms` counts
confirms, `wire` shakes hands; `clock` and `proc` measure the workers' and the broker's processor time; `report`
prints the table. Messages that differ are `recipes` and `applications`, in the rings of `mixed`. `perf_test` lets
RabbitMQ's own load generator measure the same brokers.
"""
