"""RPC, the serving half: answer each request to the queue that its sender named.

A request carries two properties: `reply_to`, the queue for the answer, and `correlation_id`, which we
copy into the answer so that the client knows which of its requests it belongs to. The request is
acknowledged after the answer is sent: if this program dies in between, another server does the request
again, so what a server does should bear being done twice.

    python examples/rpc_server.py   # start as many as you have cores
    python examples/rpc_client.py 30
"""

import argparse
import math

import pika
from pika.adapters.blocking_connection import BlockingChannel


def answer(request: bytes) -> str:
    """The prime factors of a number, or what is wrong with the request."""
    try:
        number = int(request)
    except ValueError:
        return "error: not a whole number"
    if not 2 <= number <= 10**12:
        return "error: from 2 to 1000000000000, please"
    factors = []
    for divisor in range(2, math.isqrt(number) + 1):
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
    return " x ".join(str(factor) for factor in [*factors, *([number] if number > 1 else [])])


def serve(
    channel: BlockingChannel,
    method: pika.spec.Basic.Deliver,
    properties: pika.BasicProperties,
    body: bytes,
) -> None:
    print(f"request: {body.decode(errors='replace')}", flush=True)
    if properties.reply_to:
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, answer(body).encode(), properties=reply)
    channel.basic_ack(method.delivery_tag)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Serve prime factors from the queue 'factors'.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue="factors", durable=True)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("factors", serve)
        print("serving 'factors'", flush=True)
        channel.start_consuming()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
