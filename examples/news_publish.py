"""Publish and subscribe, the publishing half: everybody who listens now gets a copy.

A fanout exchange passes each message to every queue that is bound to it, and looks at no routing key.
With no queue bound the message is dropped; here that is what we want, as yesterday's news is of no use to
anyone.

    python examples/news_publish.py "It rains."
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Publish a headline to all subscribers.")
    arguments.add_argument("headline", nargs="?", default="Nothing happened today.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange="news", exchange_type="fanout")
        channel.basic_publish(exchange="news", routing_key="", body=options.headline.encode())
        print(f"published: {options.headline}")


if __name__ == "__main__":
    main()
