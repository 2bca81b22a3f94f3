"""The plain values of the metadata store's contract."""

import pytest

from amqpd.topology.metadata.store import Compare, DeleteKey, MetadataTransaction, PutKey, prefix_end


def test_a_transaction_is_checked() -> None:
    with pytest.raises(ValueError, match="twice"):
        MetadataTransaction((), (PutKey("a", ""), DeleteKey("a")))
    with pytest.raises(ValueError, match="not a key"):
        MetadataTransaction((Compare(""),))


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("", None), ("a", "b"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("a\ud7ff", "a\ue000")],
)
def test_prefix_end(prefix: str, end: str | None) -> None:
    assert prefix_end(prefix) == end
