"""The management API: HTTP for operators, and for the tools that speak RabbitMQ's.

What comes in: requests. What goes out: JSON, of what the use cases of `amqpd/management/` answer.
From the socket inwards: `server.py` (ports, connections, their bounds), `shield.py` (what a request may be at all),
`app.py` (all routes), `login.py` (who asks, and what for), `routes/` (one file for each kind of thing), `lists.py`
(pages of them), `rows/` (RabbitMQ's fields of our facts).
Rules: 1. Nothing is decided here that a use case decides: permissions, what is there, what is in the way. 2. A long
list is made in slices, the broker going on in between; what nobody asks for costs nothing. 3. Names, codes and
sentences are RabbitMQ's, because tools compare them.
Not here: the broker (`amqpd/`); what it gives to this (`amqpd/management/face.py`).

Source for routes and fields: https://www.rabbitmq.com/docs/http-api-reference.
"""
