"""Work queues, the submitting half: hand out tasks that must not be lost.

Three things together keep a task safe over a crash of the broker: the queue is durable, the message is
persistent, and the publisher waits for the confirm. `confirm_delivery` makes pika do that:
`basic_publish` returns when the broker has the message on disk, and raises when it refuses it or has no
queue for it (`mandatory`).

    python examples/work_submit.py "one second." "three seconds..."
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Submit tasks; each dot in a task is one unit of work.")
    arguments.add_argument("tasks", nargs="*", default=["first task.", "second task..", "third task..."])
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    options = arguments.parse_args()

    persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue="tasks", durable=True)
        channel.confirm_delivery()
        for task in options.tasks:
            channel.basic_publish("", "tasks", task.encode(), properties=persistent, mandatory=True)
            print(f"submitted: {task}")


if __name__ == "__main__":
    main()
