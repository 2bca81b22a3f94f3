"""Publishes that differ in more than their bodies, as a part of `compiled.pyx`: the twin of `mixed.py`.

What comes in and goes out: as in `mixed.py`.
Rules: 1. `mixed.py` is the definition. 2. An index is checked when it comes from outside, and never changes. 3. One
scan is under way at a time, so its scratch memory is the module's.
Not here: `Run` (`compiled.pyx`), what properties have in common (`screening.pxi`), keys (`keys.pxi`).
"""

cdef enum:
    ALIKE_MIN = 16
    MESSAGES_MAX = 4096
    BODY_BYTES_MAX = 16 * 1024 - 1

cdef uint32_t PUBLISH_ID = 0x003C0028
cdef int64_t AT_MAX = (<int64_t>1 << 32) - 1


cdef struct Place:
    uint32_t at
    uint16_t method
    uint16_t key
    uint32_t header
    uint32_t body


cdef Place[MESSAGES_MAX] PLACES


cdef inline int64_t size_of(const Place* place) noexcept nogil:
    """Of a message, in frames."""
    return <int64_t>place.method + place.header + (<int64_t>place.body + FRAME_OVERHEAD_BYTES if place.body else 0)


@cython.final
cdef class Mixed(Run):
    """See `mixed.Mixed`."""

    cdef readonly bytes index
    cdef readonly tuple keys
    cdef readonly bytes common
    cdef int64_t nbytes_
    cdef int64_t body_bytes_
    cdef int64_t body_size_max_

    def __cinit__(self, *_):
        self.index = b""
        self.keys = ()
        self.common = b""

    def __init__(self, bytes data not None, bytes index not None, tuple keys not None, bytes common not None):
        cdef int64_t count = PyBytes_GET_SIZE(index) // <int64_t>sizeof(Place), i, end = 0
        cdef const Place* place = <const Place*>PyBytes_AS_STRING(index)
        cdef int64_t keys_max = len(keys) or MESSAGES_MAX
        if count < 2 or count > MESSAGES_MAX:
            raise ValueError(f"no batch has {count} messages")
        for i in range(count):
            if (
                place[i].at < end
                or place[i].method < METHOD_BYTES_MIN
                or place[i].header < HEADER_BYTES_MIN
                or place[i].key >= keys_max
                or place[i].body > BODY_BYTES_MAX
            ):
                raise ValueError("a batch's index is not one")
            end = place[i].at + size_of(place + i)
        if end > PyBytes_GET_SIZE(data):
            raise ValueError("a batch's messages are not within its data")
        self.data = data
        self.index = index
        self.keys = keys
        self.common = common
        self.count = count
        self.sum_up()

    cdef inline const Place* places(self) noexcept:
        return <const Place*>PyBytes_AS_STRING(self.index)

    cdef void sum_up(self) noexcept:
        cdef const Place* place = self.places()
        cdef int64_t i
        self.nbytes_ = self.body_bytes_ = self.body_size_max_ = 0
        for i in range(self.count):
            self.nbytes_ += size_of(place + i)
            self.body_bytes_ += place[i].body
            if place[i].body > self.body_size_max_:
                self.body_size_max_ = place[i].body

    @property
    def mixed(self):
        return True

    @property
    def nbytes(self):
        return self.nbytes_

    @property
    def body_bytes(self):
        return self.body_bytes_

    @property
    def body_size_max(self):
        return self.body_size_max_

    @property
    def memory_bytes(self):
        return self.nbytes_ + <int64_t>sizeof(Place) * self.count

    @property
    def measures(self):
        return self.count, -1, self.body_bytes_, self.nbytes_ + <int64_t>sizeof(Place) * self.count

    @property
    def start(self):
        raise AttributeError("start")

    @property
    def stride(self):
        raise AttributeError("stride")

    @property
    def method_size(self):
        raise AttributeError("method_size")

    @property
    def header_size(self):
        raise AttributeError("header_size")

    @property
    def body_size(self):
        raise AttributeError("body_size")

    @property
    def body_frames(self):
        raise AttributeError("body_frames")

    @property
    def key(self):
        raise AttributeError("key")

    @property
    def names(self):
        raise AttributeError("names")

    @property
    def properties(self):
        raise AttributeError("properties")

    def raw(self):
        """The frames of all messages, end to end."""
        if not self.count:
            return b""
        cdef const Place* place = self.places()
        cdef const Place* last = place + self.count - 1
        if last.at + size_of(last) - place.at == self.nbytes_:
            return cut(self.data, place.at, place.at + self.nbytes_)
        cdef bytes frames = new_bytes(self.nbytes_)
        cdef Target to = <Target>PyBytes_AS_STRING(frames)
        cdef int64_t i
        for i in range(self.count):
            memcpy(to, PyBytes_AS_STRING(self.data) + place[i].at, <size_t>size_of(place + i))
            to += size_of(place + i)
        return frames

    def part(self, int64_t low, int64_t high):
        """See `mixed.Mixed.part`."""
        check_range(self, low, high)
        if low == high:
            return _INCOMPLETE
        cdef int64_t size = <int64_t>sizeof(Place)
        return copied(self, cut(self.index, low * size, high * size))

    def drop_keys(self):
        """See `mixed.Mixed.drop_keys`."""
        self.keys = ()

    def divided(self, bytes ends not None, bytes parts not None, int64_t count):
        """See `mixed.Mixed.divided`."""
        cdef const uint32_t* stops = <const uint32_t*>PyBytes_AS_STRING(ends)
        cdef const uint32_t* numbers = <const uint32_t*>PyBytes_AS_STRING(parts)
        cdef int64_t keys = PyBytes_GET_SIZE(ends) // 4, all_parts = PyBytes_GET_SIZE(parts) // 4, i, at, begin
        if keys != <int64_t>len(self.keys):
            raise ValueError("an end for each key")
        for i in range(keys):
            if stops[i] < (stops[i - 1] if i else 0) or stops[i] > all_parts:
                raise ValueError("an end for each key")
        for i in range(all_parts):
            if numbers[i] >= count:
                raise ValueError("a number of a part that there is not")
        if not 0 < count <= all_parts or not keys:
            raise ValueError("a part of nothing")
        cdef const Place* place = self.places()
        cdef int64_t* sizes = <int64_t*>calloc(<size_t>count, sizeof(int64_t))
        cdef Place** to = <Place**>calloc(<size_t>count, sizeof(Place*))
        cdef list indexes = []
        cdef bytes index
        try:
            if sizes == NULL or to == NULL:
                raise MemoryError
            for i in range(self.count):
                begin = stops[place[i].key - 1] if place[i].key else 0
                for at in range(begin, stops[place[i].key]):
                    sizes[numbers[at]] += <int64_t>sizeof(Place)
            for i in range(count):
                if not sizes[i]:
                    raise ValueError("a part of nothing")
                index = new_bytes(sizes[i])
                indexes.append(index)
                to[i] = <Place*>PyBytes_AS_STRING(index)
            for i in range(self.count):
                begin = stops[place[i].key - 1] if place[i].key else 0
                for at in range(begin, stops[place[i].key]):
                    to[numbers[at]][0] = place[i]
                    to[numbers[at]] += 1
        finally:
            free(sizes)
            free(to)
        return [part_of(self, each) for each in indexes]

    def names_of(self, int64_t i):
        """Exchange and routing key of message i as they were published."""
        check_message(self, i)
        cdef const Place* place = self.places() + i
        return cut(self.data, <int64_t>place.at + 13, <int64_t>place.at + place.method - 2)

    def body(self, int64_t i):
        """See `Run.body`."""
        check_message(self, i)
        cdef const Place* place = self.places() + i
        cdef int64_t begin = <int64_t>place.at + place.method + place.header + FRAME_HEAD_BYTES
        return cut(self.data, begin, begin + place.body) if place.body else b""

    def bytes_in(self, int64_t low, int64_t high):
        """See `Run.bytes_in`."""
        check_range(self, low, high)
        cdef const Place* place = self.places()
        cdef int64_t i, nbytes = 0
        for i in range(low, high):
            nbytes += place[i].body
        return nbytes


cdef Mixed made(bytes data, bytes index, tuple keys, bytes common):
    """What is known to be right."""
    cdef Mixed batch = Mixed.__new__(Mixed)
    batch.data = data
    batch.index = index
    batch.keys = keys
    batch.common = common
    batch.count = PyBytes_GET_SIZE(index) // <int64_t>sizeof(Place)
    batch.sum_up()
    return batch


cdef Run single(bytes data, int64_t start, const Place* place):
    """A run of the one message."""
    cdef Run run = Run.__new__(Run)
    run.data = data
    run.start = start
    run.stride = size_of(place)
    run.count = 1
    run.method_size = place.method
    run.header_size = place.header
    run.body_frames = 1 if place.body else 0
    return run


cdef Run part_of(Mixed batch, bytes index):
    """The messages of this index, which is of the batch's data: what is small is copied out."""
    cdef const Place* place = <const Place*>PyBytes_AS_STRING(index)
    cdef int64_t count = PyBytes_GET_SIZE(index) // <int64_t>sizeof(Place), i, nbytes = 0
    for i in range(count):
        nbytes += size_of(place + i)
    if count < 2 or nbytes * PIN_SHARE_MIN < PyBytes_GET_SIZE(batch.data):
        return copied(batch, index)
    return made(batch.data, index, (), batch.common)


cdef Run copied(Mixed batch, bytes index):
    """As `part_of`, and it shares no memory with the batch."""
    cdef const Place* place = <const Place*>PyBytes_AS_STRING(index)
    cdef Source frames = <Source>PyBytes_AS_STRING(batch.data)
    cdef int64_t count = PyBytes_GET_SIZE(index) // <int64_t>sizeof(Place), i, nbytes = 0, size
    for i in range(count):
        nbytes += size_of(place + i)
    if count == 1:
        return single(cut(batch.data, place.at, place.at + nbytes), 0, place)
    cdef bytes data = new_bytes(nbytes)
    cdef bytes moved = new_bytes(PyBytes_GET_SIZE(index))
    cdef Place* to = <Place*>PyBytes_AS_STRING(moved)
    cdef Target begin = <Target>PyBytes_AS_STRING(data)
    nbytes = 0
    for i in range(count):
        size = size_of(place + i)
        memcpy(begin + nbytes, frames + place[i].at, <size_t>size)
        to[i] = place[i]
        to[i].at = <uint32_t>nbytes
        nbytes += size
    return made(data, moved, (), batch.common)


include "keys.pxi"


def scan_batch(bytes data not None, int64_t pos, int64_t end, int64_t payload_max):
    """See `mixed.scan_batch`. Raises ValueError unless 0 <= pos <= end <= len(data)."""
    global SCANS
    cdef object scanned = scan_publishes(data, pos, end, payload_max)
    if scanned is None:
        return None
    cdef Run run = <Run>scanned
    if not 0 < run.count < ALIKE_MIN or run.body_frames > 1 or size_of_body(run) > BODY_BYTES_MAX or end > AT_MAX:
        return run
    cdef Source base = <Source>PyBytes_AS_STRING(data)
    cdef int64_t at = pos + run.stride * run.count, i, count = run.count
    if end - at < ACK_FRAME_BYTES or load16(base + at + 1) != load16(base + pos + 1):
        return run
    cdef Common common, other
    if not common_of(base + pos + run.method_size + 19, run.header_size - 20, &common):
        return run
    cdef Shape shape
    cdef Place* place
    cdef uint32_t keys = 0, number = 0
    SCANS += 1
    for i in range(count):
        place = &PLACES[i]
        place.at = <uint32_t>(i * run.stride)
        place.method = <uint16_t>run.method_size
        place.header = <uint32_t>run.header_size
        place.body = <uint32_t>size_of_body(run)
        if not i:
            number = number_of(base, pos, place, 0, &keys)
        place.key = <uint16_t>number
    while count < MESSAGES_MAX and end - at >= ACK_FRAME_BYTES:
        if load16(base + at + 1) != load16(base + pos + 1) or load32(base + at + 7) != PUBLISH_ID:
            break
        if measure(base + at, end - at, payload_max, &shape) != WHOLE or shape.body_frames > 1:
            break
        place = &PLACES[count]
        place.at = <uint32_t>(at - pos)
        place.method = <uint16_t>shape.method_size
        place.header = <uint32_t>shape.header_size
        i = shape.stride - shape.method_size - shape.header_size - shape.body_frames * FRAME_OVERHEAD_BYTES
        if i > BODY_BYTES_MAX:
            break
        place.body = <uint32_t>i
        if not common_of(base + at + shape.method_size + 19, shape.header_size - 20, &other):
            break
        if other.size != common.size or memcmp(other.octets, common.octets, <size_t>common.size) != 0:
            break
        if (
            place.method != (place - 1).method
            or memcmp(base + at + 13, base + pos + (place - 1).at + 13, <size_t>(place.method - 14)) != 0
        ):
            number = number_of(base, pos, place, <uint32_t>count, &keys)
        place.key = <uint16_t>number
        count += 1
        at += shape.stride
    if count == run.count:
        return run
    cdef list names = []
    for i in range(keys):
        place = &PLACES[FIRST_WITH[i]]
        names.append(cut(data, pos + place.at + 13, pos + place.at + place.method - 1))
    cdef int64_t less = pos
    if (at - pos) * PIN_SHARE_MIN < PyBytes_GET_SIZE(data):
        data, less = cut(data, pos, at), 0
    if less:
        for i in range(count):
            PLACES[i].at += <uint32_t>less
    return made(
        data,
        PyBytes_FromStringAndSize(<const char*>&PLACES[0], count * <int64_t>sizeof(Place)),
        tuple(names),
        PyBytes_FromStringAndSize(<const char*>common.octets, <Py_ssize_t>common.size),
    )
