"""Routing, the emitting half: subscribers choose by one exact word.

A direct exchange passes a message to the queues that are bound with a key equal to its routing key. Here
the key is how bad it is.

    python examples/alerts_emit.py error "The disk is full."
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Emit one alert.")
    arguments.add_argument("severity", nargs="?", default="info", choices=["info", "warning", "error"])
    arguments.add_argument("text", nargs="?", default="All is well.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange="alerts", exchange_type="direct")
        channel.basic_publish(exchange="alerts", routing_key=options.severity, body=options.text.encode())
        print(f"emitted {options.severity}: {options.text}")


if __name__ == "__main__":
    main()
