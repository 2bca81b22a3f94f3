"""Publish and subscribe, the subscribing half: a private queue for as long as this program runs.

Declaring a queue with an empty name lets the broker choose one; `exclusive` ties it to this connection,
so it is gone when we are. One such queue per subscriber is what gives everyone a copy: two programs that
consume from one queue would share the messages instead.

    python examples/news_subscribe.py   # start two of them
    python examples/news_publish.py
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Print headlines from now on.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    arguments.add_argument("--count", type=int, default=0, help="stop after this many (0: never)")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange="news", exchange_type="fanout")
        queue = channel.queue_declare(queue="", exclusive=True).method.queue
        channel.queue_bind(queue, exchange="news")
        print(f"subscribed with {queue}", flush=True)
        for received, (_method, _properties, body) in enumerate(channel.consume(queue, auto_ack=True), 1):
            print(f"news: {body.decode()}", flush=True)
            if received == options.count:
                break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
