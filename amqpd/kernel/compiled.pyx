# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: binding=False, embedsignature=True
"""The compiled kernel: what `reference.py` defines, by pointers into the received bytes.

What comes in and goes out: as in `reference.py`; encoded deliveries are always `bytes`.
Rules: 1. `reference.py` is the definition; where results differ, this file is wrong. 2. The shape of a `Run` is
checked when one is made and never changes, so what reads a message of a run (0 <= i < count) stays inside its data;
everything that is read from the bytes is compared with what is left before it is used. 3. Offsets and sizes are 64
bits wide and signed, on every platform: what the wire says (32 bits; 64 for a body) cannot make a sum of them
overflow. Numbers are read and written octet by octet, so nothing needs to be aligned. 4. Memory that is written is
that of a new bytes object that nothing else refers to.
Not here: which kernel is used (`__init__.py`), how it is built (`setup.py`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from amqpd.kernel.octets cimport *

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

NAME = "cython"

cdef enum:
    ACK_FRAME_BYTES = 21
    # Method frame of a publish with empty names; content header frame without properties.
    METHOD_BYTES_MIN = 17
    HEADER_BYTES_MIN = 22
    # As in reference.py: a run that uses less than this share of its buffer is copied out of it.
    PIN_SHARE_MIN = 2

# No object is larger than this, so sums of a few sizes below it are far from the end of 64 bits.
cdef int64_t BYTES_MAX = <int64_t>1 << 48
cdef int64_t SIZE_32_MAX = (<int64_t>1 << 32) - 1
cdef uint64_t TAG_MAX = ~<uint64_t>0


@cython.freelist(256)
cdef class Run:
    """`count` publishes that differ only in their bodies; see `reference.Run`. 64 bytes, unknown to the garbage
    collector. Raises ValueError for a shape that is not the data's."""

    cdef readonly bytes data
    cdef readonly int64_t start
    cdef readonly int64_t stride
    cdef readonly int64_t count
    cdef readonly int64_t header_size
    cdef readonly uint32_t method_size
    cdef readonly uint32_t body_frames

    def __cinit__(self, *_):
        self.data = b""

    def __init__(
        self,
        bytes data not None,
        int64_t start,
        int64_t stride,
        int64_t count,
        int64_t method_size,
        int64_t header_size,
        int64_t body_size,
        int64_t body_frames,
    ):
        cdef int64_t size = PyBytes_GET_SIZE(data)
        if not (
            0 <= start <= size
            and 0 <= stride <= BYTES_MAX
            and 0 <= count <= BYTES_MAX
            and 0 <= method_size <= SIZE_32_MAX
            and 0 <= header_size <= BYTES_MAX
            and 0 <= body_size <= BYTES_MAX
            and 0 <= body_frames <= SIZE_32_MAX
        ):
            raise ValueError("a run's numbers are not within its data")
        if stride != method_size + header_size + body_size + body_frames * FRAME_OVERHEAD_BYTES:
            raise ValueError("a run's stride is not the sum of its frames")
        if count and (
            method_size < METHOD_BYTES_MIN or header_size < HEADER_BYTES_MIN or stride > (size - start) // count
        ):
            raise ValueError("a run's frames are too small, or more than its data")
        self.data = data
        self.start = start
        self.stride = stride
        self.count = count
        self.method_size = <uint32_t>method_size
        self.header_size = header_size
        self.body_frames = <uint32_t>body_frames

    @property
    def mixed(self):
        """It is a `Mixed`."""
        return False

    @property
    def body_size(self):
        return size_of_body(self)

    @property
    def body_bytes(self):
        """Of all bodies together."""
        return size_of_body(self) * self.count

    @property
    def body_size_max(self):
        """Of the largest body."""
        return size_of_body(self)

    @property
    def memory_bytes(self):
        """What is counted against a queue that has it, beside what an object takes."""
        return self.stride * self.count

    @property
    def measures(self):
        """See `reference.Run.measures`."""
        cdef int64_t size = size_of_body(self)
        return self.count, size, size * self.count, self.stride * self.count

    def names_of(self, int64_t i):
        """`names`, of message i."""
        check_message(self, i)
        return self.names

    def bytes_in(self, int64_t low, int64_t high):
        """Of the bodies of messages low..high-1."""
        check_range(self, low, high)
        return size_of_body(self) * (high - low)

    @property
    def key(self):
        """The payload of the basic.publish method from the exchange on, flags included: what decides the route."""
        return cut(self.data, self.start + 13, self.start + self.method_size - 1)

    @property
    def names(self):
        """Exchange and routing key as they were published, two short strings."""
        return cut(self.data, self.start + 13, self.start + self.method_size - 2)

    @property
    def properties(self):
        """Property flags and property list of the content header, raw."""
        cdef int64_t at = self.start + self.method_size
        return cut(self.data, at + 19, at + self.header_size - 1)

    @property
    def nbytes(self):
        return self.stride * self.count

    def raw(self):
        """The frames of all messages, end to end: what the journal stores and `scan_publishes` reads again."""
        return cut(self.data, self.start, self.start + self.stride * self.count)

    def part(self, int64_t low, int64_t high):
        """A copy of the messages low..high-1 that shares no memory with this run."""
        check_range(self, low, high)
        cdef Run part = Run.__new__(Run)
        part.data = cut(self.data, self.start + low * self.stride, self.start + high * self.stride)
        part.stride = self.stride
        part.count = high - low
        part.method_size = self.method_size
        part.header_size = self.header_size
        part.body_frames = self.body_frames
        return part

    def body(self, int64_t i):
        """The body of message i, without its framing."""
        check_message(self, i)
        cdef int64_t size = size_of_body(self)
        cdef bytes body = new_bytes(size)
        cdef Reader reader = reader_of(self, i)
        take(&reader, <Target>PyBytes_AS_STRING(body), size)
        return body


cdef Run _INCOMPLETE = Run(b"", 0, 0, 0, 0, 0, 0, 0)
INCOMPLETE = _INCOMPLETE


cdef inline int64_t size_of_body(Run run) noexcept:
    return run.stride - run.method_size - run.header_size - <int64_t>run.body_frames * FRAME_OVERHEAD_BYTES


cdef inline bytes cut(bytes data, int64_t begin, int64_t stop):
    """data[begin:stop], of positions that are not negative (a run of nothing may have a stop of -1 or -2)."""
    cdef int64_t size = PyBytes_GET_SIZE(data)
    if stop > size:
        stop = size
    if begin >= stop:
        return b""
    if begin == 0 and stop == size:
        return data
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + begin, stop - begin)


cdef inline bytes new_bytes(int64_t size):
    """To be written before anyone sees them."""
    if size > PY_SSIZE_T_MAX:
        raise MemoryError
    return PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)


cdef inline int check_range(Run run, int64_t low, int64_t high) except -1:
    if not 0 <= low <= high <= run.count:
        raise IndexError(f"messages {low} to {high} of a run of {run.count}")
    return 0


cdef inline int check_message(Run run, int64_t i) except -1:
    if not 0 <= i < run.count:
        raise IndexError(f"message {i} of a run of {run.count}")
    return 0


# Publishes


cdef struct Shape:
    int64_t stride
    int64_t method_size
    int64_t header_size
    int64_t body_frames


cdef enum Verdict:
    WHOLE
    PARTIAL
    NONE


def scan_publishes(bytes data not None, int64_t pos, int64_t end, int64_t payload_max):
    """The longest run of publishes that begins at data[pos]; see `reference.scan_publishes`. Raises ValueError
    unless 0 <= pos <= end <= len(data)."""
    cdef int64_t size = PyBytes_GET_SIZE(data), count = 1, at, same
    cdef Shape shape
    if not 0 <= pos <= end <= size:
        raise ValueError(f"no range within {size} bytes: {pos} to {end}")
    cdef Source base = <Source>PyBytes_AS_STRING(data)
    cdef Verdict verdict = measure(base + pos, end - pos, payload_max, &shape)
    if verdict != WHOLE:
        return None if verdict == NONE else _INCOMPLETE
    if shape.body_frames < 2:
        same = shape.stride if shape.body_frames == 0 else shape.method_size + shape.header_size + FRAME_HEAD_BYTES
        at = pos + shape.stride
        while (
            at + shape.stride <= end
            and base[at + shape.stride - 1] == FRAME_END
            and memcmp(base + pos, base + at, <size_t>same) == 0
        ):
            at += shape.stride
        count = (at - pos) // shape.stride
    cdef Run run = Run.__new__(Run)
    if shape.stride * count * PIN_SHARE_MIN < size:
        run.data = PyBytes_FromStringAndSize(<const char*>base + pos, shape.stride * count)
    else:
        run.data = data
        run.start = pos
    run.stride = shape.stride
    run.count = count
    run.method_size = <uint32_t>shape.method_size
    run.header_size = shape.header_size
    run.body_frames = <uint32_t>shape.body_frames
    return run


cdef Verdict measure(Source base, int64_t end, int64_t payload_max, Shape* shape) noexcept nogil:
    """The shape of the publish at `base`, of which there are `end` bytes."""
    cdef int64_t at, size, exchange, key_at
    if end < FRAME_HEAD_BYTES:
        return PARTIAL
    cdef uint32_t channel = load16(base + 1)
    size = load32(base + 3)
    at = size + FRAME_OVERHEAD_BYTES
    if base[0] != METHOD or size < 9 or size > payload_max:
        return NONE
    if end - at < FRAME_HEAD_BYTES:
        return PARTIAL
    exchange = base[13]
    key_at = 14 + exchange
    # The first makes sure that the key's length is in the frame.
    if exchange + 9 > size or base[at - 1] != FRAME_END or key_at + base[key_at] + 3 != at:
        return NONE
    shape.method_size = at
    size = load32(base + at + 3)
    if base[at] != HEADER or load16(base + at + 1) != channel or size < 14 or size > payload_max:
        return NONE
    shape.header_size = size + FRAME_OVERHEAD_BYTES
    if end - at < shape.header_size:
        return PARTIAL
    if load16(base + at + 7) != 60 or load16(base + at + 9) != 0:
        return NONE
    # As large as the client says: it is only compared, until it is known to be there.
    cdef uint64_t missing = load64(base + at + 11)
    at += shape.header_size
    if base[at - 1] != FRAME_END:
        return NONE
    shape.body_frames = 0
    while missing > 0:
        if end - at < FRAME_HEAD_BYTES:
            return PARTIAL
        size = load32(base + at + 3)
        if base[at] != BODY or load16(base + at + 1) != channel or size > payload_max:
            return NONE
        if size == 0 or <uint64_t>size > missing:
            return NONE
        at += size + FRAME_OVERHEAD_BYTES
        if at > end:
            return PARTIAL
        if base[at - 1] != FRAME_END:
            return NONE
        missing -= <uint64_t>size
        shape.body_frames += 1
    if shape.body_frames > SIZE_32_MAX:
        return NONE  # 38 GB in one buffer: frame by frame, then
    shape.stride = at
    return WHOLE


# Acknowledgements


def scan_acks(bytes data not None, int64_t pos, int64_t end):
    """The range of delivery tags that the basic.ack frames at data[pos] settle; see `reference.scan_acks`. Raises
    ValueError when there is not one whole frame before `end`, or `end` is behind the data."""
    cdef int64_t size = PyBytes_GET_SIZE(data), at
    if not 0 <= pos <= end <= size or end - pos < ACK_FRAME_BYTES:
        raise ValueError(f"no basic.ack within {size} bytes: {pos} to {end}")
    cdef Source base = <Source>PyBytes_AS_STRING(data), head = base + pos
    cdef uint64_t first = load64(head + 11), tag = first
    if head[19]:
        return first, first, True, pos + ACK_FRAME_BYTES
    at = pos + ACK_FRAME_BYTES
    while (
        end - at >= ACK_FRAME_BYTES
        and load64(base + at + 11) == tag + 1
        and base[at + 19] == 0
        and base[at + 20] == FRAME_END
        and memcmp(head, base + at, 11) == 0
    ):
        tag += 1
        at += ACK_FRAME_BYTES
    # Behind the last tag the wire begins again at 0, and the range does not.
    last = tag if tag >= first else <object>first + ((at - pos) // ACK_FRAME_BYTES - 1)
    return first, last, False, at


include "screening.pxi"
include "batches.pxi"
include "deliveries.pxi"
