"""RabbitMQ's fields, made of our facts: pure, one file for each kind of thing."""
