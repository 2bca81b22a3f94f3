"""A client that asks a broker something again and again, and notes the longest time that it waited.

What comes in: a port and the file of the figures. What goes out: the longest wait for the answer to a passive
declaration.
Rules: a process of its own, so that it waits for nothing but the broker and the machine.
Not here: what keeps the broker busy meanwhile.
"""

from __future__ import annotations

import socket
import sys
import time

from pamqp import commands

from tests.stalls.figures import Figures
from tests.stalls.wire import login, method

# Between two questions: short against what is looked for, and no load of its own.
PAUSE_S = 0.001
RECEIVE_BYTES = 65_536


def main(port: int, figures: Figures) -> None:
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for data in [*login(), method(commands.Queue.Declare(queue="victim"))]:
        client.sendall(data)
        client.recv(RECEIVE_BYTES)
    question = method(commands.Queue.Declare(queue="victim", passive=True))
    print("ready", flush=True)
    while True:
        asked_at = time.perf_counter()
        client.sendall(question)
        if not client.recv(RECEIVE_BYTES):
            return
        waited = time.perf_counter() - asked_at
        if waited > figures.wait_s:
            figures.wait_s = waited
        figures.asked += 1
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(int(sys.argv[1]), Figures(sys.argv[2]))
