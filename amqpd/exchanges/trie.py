"""The trie of wildcard patterns, and the walk that matches a key against all of them at once.

What comes in: the words of a pattern in normal form, the words of a routing key. What goes out: the sets of
values at the ends of the patterns that match.
Theory of operation. A node has a branch per literal word and, beside those, one for `*` and one for `#` (NATS
has a level object between nodes; here the two are one). The trie is read as a nondeterministic automaton: the
state is a set of active nodes, and each word of the key moves the whole set one step.
Rules: 1. entering a node also enters its `#` child, which stands for zero words; 2. a `#` child once entered
stays active to the end of the key, so its values match whatever follows; 3. by the normal form a `#` node has
literal children only; 4. every other node has one way in, so the set needs no check for doubles except for
`#` nodes; 5. so a match costs at most words x active nodes, where backtracking would try C(words + k, k) ways
for k `#`; 6. nodes without values and children are pruned.
Not here: what is done with the values, and the cache (`sublist.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic

from amqpd.exchanges.destinations import CountedSet, T
from amqpd.exchanges.patterns import HASH, STAR

# Nodes looked at before other connections may be served: a millisecond. A word of the key is never cut.
STEP_VISITS = 10_000


class TrieNode(Generic[T]):
    """A position in the trie: its literal children, those for `*` and `#`, and the values whose pattern ends here."""

    __slots__ = ("hash", "literals", "star", "values")

    def __init__(self) -> None:
        self.literals: dict[str, TrieNode[T]] | None = None
        self.star: TrieNode[T] | None = None
        self.hash: TrieNode[T] | None = None
        self.values: CountedSet[T] | None = None

    def is_bare(self) -> bool:
        return self.values is None and self.star is None and self.hash is None and self.literals is None

    def child(self, word: str) -> TrieNode[T] | None:
        if word == STAR:
            return self.star
        if word == HASH:
            return self.hash
        return None if self.literals is None else self.literals.get(word)

    def attach(self, word: str, node: TrieNode[T]) -> None:
        if word == STAR:
            self.star = node
        elif word == HASH:
            self.hash = node
        elif self.literals is None:
            self.literals = {word: node}
        else:
            self.literals[word] = node

    def detach(self, word: str) -> None:
        if word == STAR:
            self.star = None
        elif word == HASH:
            self.hash = None
        elif self.literals is not None:
            del self.literals[word]
            if not self.literals:
                self.literals = None


class Trie(Generic[T]):
    """A trie of topic patterns by their words. `nodes` does not count the root. `visits` counts the active nodes
    of every step of every walk."""

    __slots__ = ("_root", "nodes", "visits")

    def __init__(self) -> None:
        self._root: TrieNode[T] = TrieNode()
        self.nodes = 0
        self.visits = 0

    def create(self, words: list[str]) -> CountedSet[T]:
        """The values of this pattern, made with the nodes on the way if they were not there. The caller adds
        one."""
        node = self._root
        for word in words:
            child = node.child(word)
            if child is None:
                child = TrieNode()
                node.attach(word, child)
                self.nodes += 1
            node = child
        if node.values is None:
            node.values = CountedSet()
        return node.values

    def remove(self, words: list[str], value: T) -> None:
        """Raises KeyError, and changes nothing, when this pattern does not hold this value."""
        path = [self._root]
        for word in words:
            child = path[-1].child(word)
            if child is None:
                raise KeyError(".".join(words))
            path.append(child)
        values = path[-1].values
        if values is None:
            raise KeyError(".".join(words))
        values.remove(value)
        if not values:
            path[-1].values = None
        while len(path) > 1 and path[-1].is_bare():
            path.pop()
            path[-1].detach(words[len(path) - 1])
            self.nodes -= 1

    def collect_in_steps(self, words: list[str], found: list[CountedSet[T]]) -> Iterator[None]:
        """Appends to `found` the values of every pattern that matches; each pattern's once. Those that are made or
        removed between two steps count or do not."""
        entered = [self._root]
        hashes: set[TrieNode[T]] = set()
        branching: list[dict[str, TrieNode[T]]] = []  # the branches of the entered `#` nodes that have any
        visits = 0
        step = 0
        while True:
            for node in entered:
                hash_node = node.hash
                if hash_node is not None and hash_node not in hashes:
                    hashes.add(hash_node)
                    if hash_node.values is not None:
                        found.append(hash_node.values)
                    if hash_node.literals is not None:
                        branching.append(hash_node.literals)
            active = entered
            if step == len(words) or not (active or branching):
                break
            word = words[step]
            step += 1
            visits += len(active) + len(branching)
            if visits > STEP_VISITS:
                self.visits += visits
                visits = 0
                yield
            entered = []
            for node in active:
                literals = node.literals
                if literals is not None:
                    child = literals.get(word)
                    if child is not None:
                        entered.append(child)
                star = node.star
                if star is not None:
                    entered.append(star)
            for literals in branching:
                child = literals.get(word)
                if child is not None:
                    entered.append(child)
        self.visits += visits
        for node in active:
            if node.values is not None:
                found.append(node.values)
