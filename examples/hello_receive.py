"""Hello world, the receiving half: print what arrives in a queue.

With `auto_ack` the broker forgets a message as soon as it is sent to us. That is fine for a greeting, and
wrong for work that must not be lost: see `work_worker.py`.

    python examples/hello_receive.py            # until Ctrl-C
    python examples/hello_receive.py --count 1  # until one message has come
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Print the messages of the queue 'hello'.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    arguments.add_argument("--count", type=int, default=0, help="stop after this many (0: never)")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue="hello", durable=True)
        print("waiting for messages in 'hello'", flush=True)
        for received, (_method, _properties, body) in enumerate(channel.consume("hello", auto_ack=True), 1):
            print(f"received: {body.decode()}", flush=True)
            if received == options.count:
                break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
