"""Which recipe a job means.

What comes in: `kind` and the recipe's arguments, as they are in the job of a publisher and in that of its consumer.
What goes out: the recipe. Not here: the recipes (`bench/recipes.py`, `bench/applications.py`).
"""

from __future__ import annotations

from typing import Any

from bench.applications import ApplicationRecipe
from bench.recipes import KeysRecipe, Recipe


def make_recipe(kind: str, **arguments: Any) -> Recipe:
    return {"keys": KeysRecipe, "application": ApplicationRecipe}[kind](**arguments)
