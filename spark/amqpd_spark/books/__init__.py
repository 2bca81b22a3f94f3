"""What `conservation` is made of: where each message of each queue has gone.

What comes in: events. What goes out: a fate for each message, added up, and each message whose fate must not be.
Rules: 1. No aggregate counts rows: the same event twice changes nothing. 2. Messages that share all their rows are
one row; only those that may be wrong become rows of their own.
Not here: the command and its words (`conservation.py`).
"""
