"""Long arguments of bindings are named by a digest in their keys, see `exchanges.values.arguments_key`.

The keys were several times as large as the arguments. The history goes: a process that follows it reads everything
again.
"""

import json
from hashlib import blake2b
from urllib.parse import quote

import sqlalchemy as sa
from alembic import op

revision = "metadata_0003"
down_revision = "metadata_0002"

# As of this step; what the running version does may change later.
ARGUMENTS_KEY_CHARS_MAX = 256

_FIND = sa.text(
    "SELECT key FROM entries WHERE key >= 'topology/binding/' AND key < 'topology/binding0' AND length(key) > :chars"
)
_READ = sa.text("SELECT value FROM entries WHERE key = :key")
_DELETE = sa.text("DELETE FROM entries WHERE key = :key")
_PUT = sa.text("INSERT OR REPLACE INTO entries (key, value, revision) SELECT :key, :value, revision + 1 FROM state")


def upgrade() -> None:
    connection = op.get_bind()
    changed = False
    for (key,) in connection.execute(_FIND, {"chars": ARGUMENTS_KEY_CHARS_MAX}).fetchall():
        record = json.loads(connection.execute(_READ, {"key": key}).scalar_one())
        text = record.get("arguments_key", "")
        if len(text) <= ARGUMENTS_KEY_CHARS_MAX:
            continue
        digest = record["arguments_key"] = "blake2b:" + blake2b(text.encode(), digest_size=32).hexdigest()
        rest = key.removesuffix("/").rpartition("/")[0]
        connection.execute(_DELETE, {"key": key})
        value = json.dumps(record, separators=(",", ":"))
        connection.execute(_PUT, {"key": f"{rest}/{quote(digest, safe='')}/", "value": value})
        changed = True
    if changed:
        connection.execute(sa.text("DELETE FROM history"))
        connection.execute(sa.text("UPDATE state SET revision = revision + 1, compacted = revision + 1"))
