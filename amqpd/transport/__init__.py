"""Clients' sockets: accepted, encrypted, read and written; which of them are ready.

What comes in: listening sockets, TLS settings. What goes out: links, each a socket with its connection machine.
May import: `amqpd.connection` and what is below it. Shell: sockets and clocks are touched here, and in the pump.
Not here: the loop that moves the bytes (`pump.py`), what the bytes mean (`connection.py`).
"""
