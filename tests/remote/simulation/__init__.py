"""Edges and a leader in one thread: both ends of remote queues as they ship, with simulated links, log, queues,
clients.

The walk: `run.py` draws a run from a seed: faults first (safety), then none (liveness). `world.py` has the source:
its log (`log.py`: a committed sequence and a tail that a lost leader may lose), its leader (`led.py`), and nodes
(`node.py`) with an edge and clients (`clients.py`) each; `network.py` has their connections, `queue.py` a plain
queue, `durable.py` queues of the node in its place. `faults.py` hurts them. `law.py` says what must hold of messages,
`judged.py` of one leader. `bugs_of_edges.py` and `bugs_of_leaders.py` plant mistakes that the law has to find;
`planted.py` is their table, with the seeds.
Simulated: sockets, time, the log, the store's word of who lives and who leads. A seed is a run.
"""
