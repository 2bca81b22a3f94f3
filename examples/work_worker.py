"""Work queues, the working half: several of these share one queue.

A task is acknowledged when it is done, not when it arrives: if a worker dies half-way, the broker gives
its task to another one (marked as redelivered). `prefetch_count=1` means "no next task before I have
settled this one", so a slow task does not hold up others behind it while another worker is idle.

    python examples/work_worker.py      # start two of them
    python examples/work_submit.py
"""

import argparse

import pika


def main() -> None:
    arguments = argparse.ArgumentParser(description="Work on tasks from the queue 'tasks'.")
    arguments.add_argument("--url", default="amqp://guest:guest@localhost:5672/%2F")
    arguments.add_argument("--name", default="worker")
    arguments.add_argument("--seconds-per-dot", type=float, default=1.0)
    arguments.add_argument("--count", type=int, default=0, help="stop after this many tasks (0: never)")
    options = arguments.parse_args()

    with pika.BlockingConnection(pika.URLParameters(options.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue="tasks", durable=True)
        channel.basic_qos(prefetch_count=1)
        print(f"{options.name} is ready", flush=True)
        for done, (method, _properties, body) in enumerate(channel.consume("tasks"), 1):
            task = body.decode()
            again = " (again: somebody else began it)" if method.redelivered else ""
            print(f"{options.name} began: {task}{again}", flush=True)
            connection.sleep(task.count(".") * options.seconds_per_dot)  # heartbeats go on meanwhile
            channel.basic_ack(method.delivery_tag)
            print(f"{options.name} finished: {task}", flush=True)
            if done == options.count:
                break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
