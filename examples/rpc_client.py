"""RPC, the asking half: send requests and match the answers by their correlation id.

All answers come to one exclusive queue of this client, in any order when there are several servers.

    python examples/rpc_client.py 30 97 1001
"""

import argparse
import uuid

import pika


class FactorsClient:
    """Asks a factor server; one object has one reply queue and any number of requests."""

    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        self.timeout_s = timeout_s
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.reply_queue = self.channel.queue_declare(queue="", exclusive=True).method.queue
        self.channel.basic_consume(self.reply_queue, self._on_reply, auto_ack=True)
        self.waiting: set[str] = set()
        self.replies: dict[str, str] = {}

    def call(self, numbers: list[str]) -> list[str]:
        """The answers in the order of the numbers. Raises TimeoutError when one does not come in time."""
        request_ids = [self._send(number) for number in numbers]
        while self.waiting:
            before = len(self.waiting)
            self.connection.process_data_events(time_limit=self.timeout_s)
            if len(self.waiting) == before:
                raise TimeoutError(f"no answer within {self.timeout_s} s")
        return [self.replies.pop(request_id) for request_id in request_ids]

    def close(self) -> None:
        self.connection.close()

    def _send(self, number: str) -> str:
        request_id = str(uuid.uuid4())
        self.waiting.add(request_id)
        properties = pika.BasicProperties(reply_to=self.reply_queue, correlation_id=request_id)
        self.channel.basic_publish("", "factors", number.encode(), properties=properties)
        return request_id

    def _on_reply(
        self,
        _channel: pika.adapters.blocking_connection.BlockingChannel,
        _method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        # An answer to nothing that we asked (a server answered twice) is not ours to keep.
        if properties.correlation_id in self.waiting:
            self.waiting.discard(properties.correlation_id)
            self.replies[properties.correlation_id] = body.decode()


def main() -> None:
    arguments = argparse.ArgumentParser(description="Ask for the prime factors of some numbers.")
    arguments.add_argument("numbers", nargs="*", default=["30"])
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    client = FactorsClient(options.url)
    for number, reply in zip(options.numbers, client.call(options.numbers), strict=True):
        print(f"{number} = {reply}")
    client.close()


if __name__ == "__main__":
    main()
