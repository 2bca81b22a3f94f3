"""Topics, the watching half: patterns with `*` for one word and `#` for any number of words, also none.

A message that fits several patterns of one queue is in that queue once.

    python examples/topics_watch.py 'no.*.snow' 'no.oslo.#'
    python examples/topics_watch.py '#'                      # everything
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Watch measurements whose key fits a pattern.")
    arguments.add_argument("patterns", nargs="+")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    arguments.add_argument("--count", type=int, default=0, help="stop after this many (0: never)")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange="weather", exchange_type="topic")
        queue = channel.queue_declare(queue="", exclusive=True).method.queue
        for pattern in options.patterns:
            channel.queue_bind(queue, exchange="weather", routing_key=pattern)
        print(f"watching {' and '.join(options.patterns)}", flush=True)
        for received, (method, _properties, body) in enumerate(channel.consume(queue, auto_ack=True), 1):
            print(f"{method.routing_key}: {body.decode()}", flush=True)
            if received == options.count:
                break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
