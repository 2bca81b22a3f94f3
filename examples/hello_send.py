"""Hello world, the sending half: put one message into a queue.

A publisher never talks to a queue directly. It publishes to an exchange; the default exchange, whose name
is empty, passes a message to the queue whose name is the routing key. Both programs declare the queue:
declaring again what is there changes nothing, so it does not matter which of them runs first.

    python examples/hello_send.py
    python examples/hello_receive.py
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Send one message to the queue 'hello'.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue="hello", durable=True)
        channel.basic_publish(exchange="", routing_key="hello", body=b"Hello, world!")
        print("sent: Hello, world!")


if __name__ == "__main__":
    main()
