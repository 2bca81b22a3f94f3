"""Files that a browser's form uploads (multipart/form-data).

What comes in: a body as it came, and its content type. What goes out: the octets of one part.
Rules: 1. A body is one form: what is before the first boundary and behind the last one is passed over. 2. A part's
octets are taken as they are: a form has no transfer encodings. 3. What is no form is refused, never guessed at.
Not here: fields that are no files; nothing here reads any.

Source: RFC 7578, RFC 2046 section 5.1.1.
"""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser

FORM = "multipart/form-data"
HEAD_BYTES_MAX = 16 << 10
PARTS_MAX = 16
"""a form that uploads a file has one or two"""


class BadForm(ValueError):
    """A form cannot be read; the text says what is wrong with it."""


def boundary_of(content_type: str) -> bytes | None:
    """None for what is no form. Raises BadForm for one without a boundary."""
    header = Message()
    header["content-type"] = content_type
    if header.get_content_type() != FORM:
        return None
    boundary = header.get_boundary("")
    if not boundary:
        raise BadForm("the content type of the form names no boundary")
    return boundary.encode("utf-8", "surrogateescape")


def part_of(body: bytes, boundary: bytes, name: str) -> bytes:
    """The first part of this name. Raises BadForm."""
    # Each boundary but the first has the line end before it, and the first one may.
    _, *pieces = (b"\r\n" + body).split(b"\r\n--" + boundary, PARTS_MAX)
    for place, piece in enumerate(pieces, 1):
        if piece.startswith(b"--"):
            break
        start, end = piece.find(b"\r\n"), piece.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if piece[:start].strip(b" \t") or end < 0:
            raise BadForm("the form cannot be read: a part has no head")
        head = BytesHeaderParser().parsebytes(piece[start + 2 : end + 2])
        if head.get_param("name", header="content-disposition") == name:
            if place == len(pieces):
                raise BadForm("the form was cut off: its last boundary is missing")
            return piece[end + 4 :]
    raise BadForm(f"the form has no part '{name}'")
