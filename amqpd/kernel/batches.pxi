"""Publishes that differ in more than their bodies, as a part of `compiled.pyx`: the twin of `mixed.py`.

What comes in and goes out: as in `mixed.py`.
Rules: 1. `mixed.py` is the definition, except that a key may be numbered twice where very many of them have one hash:
looking for one takes a bounded number of steps, whatever keys a client chooses. 2. An index is checked when it comes
from outside, and never changes. 3. One scan is under way at a time, so its scratch memory is the module's.
Not here: `Run` (`compiled.pyx`), what properties have in common (`screening.pxi`).
"""

cdef enum:
    ALIKE_MIN = 16
    MESSAGES_MAX = 4096
    BODY_BYTES_MAX = 16 * 1024 - 1
    # Twice as many as messages; a power of two.
    SLOTS = 8192
    PROBES_MAX = 16

cdef uint32_t PUBLISH_ID = 0x003C0028
cdef int64_t AT_MAX = (<int64_t>1 << 32) - 1


cdef struct Place:
    uint32_t at
    uint16_t method
    uint16_t key
    uint32_t header
    uint32_t body


cdef struct Slot:
    # Of which scan it is; the others are empty.
    uint64_t scan
    uint64_t hash
    uint32_t key


cdef Place[MESSAGES_MAX] PLACES
cdef Slot[SLOTS] SLOT_OF
# By its number, the first message with a key.
cdef uint32_t[MESSAGES_MAX] FIRST_WITH
cdef uint64_t SCANS = 0
# Clients choose keys and cannot know this.
cdef uint64_t HASH_SEED = <uint64_t>(hash(b"amqpd's routing keys") & 0x7FFFFFFFFFFFFFFF) | 1


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
        return copied(self, low, high, None) if low < high else _INCOMPLETE

    def drop_keys(self):
        """See `mixed.Mixed.drop_keys`."""
        self.keys = ()

    def selected(self, bytes wanted not None):
        """See `mixed.Mixed.selected`."""
        cdef const Place* place = self.places()
        cdef Source chosen = <Source>PyBytes_AS_STRING(wanted)
        cdef int64_t i, count = 0, nbytes = 0
        if PyBytes_GET_SIZE(wanted) < <int64_t>len(self.keys):
            raise IndexError("an octet for each key")
        for i in range(self.count):
            if chosen[place[i].key]:
                count += 1
                nbytes += size_of(place + i)
        if not count:
            raise IndexError("no message has such a key")
        if count < 2 or nbytes * PIN_SHARE_MIN < PyBytes_GET_SIZE(self.data):
            return copied(self, 0, self.count, wanted)
        cdef bytes index = new_bytes(count * <int64_t>sizeof(Place))
        cdef Place* to = <Place*>PyBytes_AS_STRING(index)
        for i in range(self.count):
            if chosen[place[i].key]:
                to[0] = place[i]
                to += 1
        return made(self.data, index, (), self.common)

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


cdef Run copied(Mixed batch, int64_t low, int64_t high, bytes wanted):
    """The messages low..high-1, or those of them with a wanted key, and nothing else."""
    cdef const Place* place = batch.places()
    cdef Source chosen = <Source>PyBytes_AS_STRING(wanted) if wanted is not None else NULL
    cdef Source frames = <Source>PyBytes_AS_STRING(batch.data)
    cdef int64_t i, count = 0, nbytes = 0, size
    cdef const Place* only = NULL
    for i in range(low, high):
        if chosen == NULL or chosen[place[i].key]:
            count += 1
            nbytes += size_of(place + i)
            only = place + i
    if count == 1:
        return single(cut(batch.data, only.at, only.at + nbytes), 0, only)
    cdef bytes data = new_bytes(nbytes)
    cdef bytes index = new_bytes(count * <int64_t>sizeof(Place))
    cdef Place* to = <Place*>PyBytes_AS_STRING(index)
    cdef Target begin = <Target>PyBytes_AS_STRING(data)
    nbytes = 0
    for i in range(low, high):
        if chosen == NULL or chosen[place[i].key]:
            size = size_of(place + i)
            memcpy(begin + nbytes, frames + place[i].at, <size_t>size)
            to[0] = place[i]
            to.at = <uint32_t>nbytes
            to += 1
            nbytes += size
    return made(data, index, (), batch.common)


cdef inline uint64_t hash_of(Source at, int64_t size) noexcept nogil:
    cdef uint64_t value = HASH_SEED ^ <uint64_t>size, part
    while size >= 8:
        memcpy(&part, at, 8)
        value = (value ^ part) * <uint64_t>0x9E3779B97F4A7C15
        value ^= value >> 32
        at += 8
        size -= 8
    part = 0
    memcpy(&part, at, <size_t>size)
    value = (value ^ part) * <uint64_t>0x9E3779B97F4A7C15
    return value ^ value >> 29


cdef uint32_t number_of(Source base, int64_t pos, const Place* place, uint32_t message, uint32_t* keys) noexcept nogil:
    """Of the message's key, of which there are `keys` until now; `place` counts from `pos`."""
    cdef int64_t size = place.method - 14
    cdef Source key = base + pos + place.at + 13
    cdef uint64_t code = hash_of(key, size)
    cdef const Place* known
    cdef Slot* slot = NULL
    cdef int probe
    for probe in range(PROBES_MAX):
        slot = &SLOT_OF[(code + <uint64_t>probe) & (SLOTS - 1)]
        if slot.scan != SCANS:
            break
        if slot.hash == code:
            known = &PLACES[FIRST_WITH[slot.key]]
            if known.method == place.method and memcmp(base + pos + known.at + 13, key, <size_t>size) == 0:
                return slot.key
    if slot.scan != SCANS:
        slot.scan = SCANS
        slot.hash = code
        slot.key = keys[0]
    FIRST_WITH[keys[0]] = message
    keys[0] += 1
    return keys[0] - 1


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
