"""Values that several packages speak of: records of the topology, limits, states, levels. Below everything.

May import: nothing of amqpd. Pure.
Not here: what is done with them.
"""
