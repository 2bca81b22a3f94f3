"""Topics, the emitting half: the routing key is a path of words.

A topic exchange compares the words between the dots with the patterns of its bindings. Keys here read
`<country>.<city>.<what>`, as in `no.oslo.snow`.

    python examples/topics_emit.py no.oslo.snow "10 cm"
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Emit one measurement.")
    arguments.add_argument("key", nargs="?", default="no.oslo.snow")
    arguments.add_argument("value", nargs="?", default="10 cm")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange="weather", exchange_type="topic")
        channel.basic_publish(exchange="weather", routing_key=options.key, body=options.value.encode())
        print(f"emitted {options.key}: {options.value}")


if __name__ == "__main__":
    main()
