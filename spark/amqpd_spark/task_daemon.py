"""The process that Spark forks the Pythons of tasks from: `spark.python.daemon.module`, on this machine.

What comes in: Spark's path of Python. What goes out: Pythons that have loaded what every task needs.
Rules: 1. PySpark is taken from where it is installed. Spark puts archives first: the source in them has to be
compiled at each start, and tasks read their lists again. 2. What is not there, or does not fit, is no error
here: the task that needs it says so.
Not here: who uses it (`session.py`).

Of 20 million events `conservation` took 8 s of Python's processor time, and takes 5 to 6.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder

NEEDED = ("numpy", "pandas", "pyarrow.compute", "pyspark.sql.pandas.serializers")


def without_archives(path: list[str]) -> list[str]:
    """Without those that Spark has added, if the folders of `path` have the same PySpark."""
    folders = [each for each in path if not each.endswith((".zip", ".jar"))]
    found = PathFinder.find_spec("pyspark", folders)
    if found is None or PathFinder.find_spec("py4j", folders) is None:
        return path
    # Those of another Spark are what its Java was made for.
    its = tuple(os.path.join(each, "") for each in found.submodule_search_locations or ())
    return [each for each in path if not each.startswith(its)]


def main() -> None:
    before, sys.path[:] = list(sys.path), without_archives(sys.path)
    for each in set(before) - set(sys.path):
        sys.path_importer_cache.pop(each, None)
    # Spark's own daemon imports the module of its first argument.
    daemon = importlib.import_module("pyspark.daemon")
    for name in NEEDED:
        # ValueError and AttributeError: of versions that do not fit each other.
        with suppress(ImportError, ValueError, AttributeError):
            importlib.import_module(name)
    daemon.manager()


if __name__ == "__main__":
    main()
