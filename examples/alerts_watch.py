"""Routing, the watching half: one queue, bound once for each severity that is asked for.

python examples/alerts_watch.py error            # only errors
python examples/alerts_watch.py warning error    # both
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Watch alerts of some severities.")
    arguments.add_argument("severities", nargs="+", choices=["info", "warning", "error"])
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    arguments.add_argument("--count", type=int, default=0, help="stop after this many (0: never)")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange="alerts", exchange_type="direct")
        queue = channel.queue_declare(queue="", exclusive=True).method.queue
        for severity in options.severities:
            channel.queue_bind(queue, exchange="alerts", routing_key=severity)
        print(f"watching {', '.join(options.severities)}", flush=True)
        for received, (method, _properties, body) in enumerate(channel.consume(queue, auto_ack=True), 1):
            print(f"{method.routing_key}: {body.decode()}", flush=True)
            if received == options.count:
                break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
