"""What `conservation` is made of: where each message of each queue has gone.

What comes in: events. What goes out: a fate for each message, added up, and each message whose fate must not be.
Rules: 1. No aggregate counts rows: the same event twice changes nothing. 2. What is kept of a message while its
events are brought together is numbers of fixed width, so that Spark aggregates by hash and spills.
Not here: the command and its words (`conservation.py`).
"""
