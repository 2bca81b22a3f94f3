"""Client libraries' own test suites, run from a local checkout against RabbitMQ and amqpd, test by test.

What comes in: the name of a suite that `catalogue.py` knows, and the folder of its checkout.
What goes out: a table of what each broker passes, and exit code 1 when amqpd fails what RabbitMQ passes.
Rules: 1. A suite is run as it is, never changed or copied. 2. Each run has a network of its own with nothing
but loopback, so a suite's default hosts lead nowhere and its fixed ports are free.
Not here: our own tests of clients (`tests/clients/`); where checkouts come from.
"""
