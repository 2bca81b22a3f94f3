"""What the broker gives away at /cli: a program for who has nothing but Python and the broker's address.

What comes in: nothing. What goes out: files.
Not here: who serves them (`routes/downloads.py`), amqpd's own command line (`amqpd/commands/`).
"""
