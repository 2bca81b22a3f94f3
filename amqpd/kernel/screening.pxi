"""Which publishes may share a batch, as a part of `compiled.pyx`: the twin of `screening.py`.

What comes in: raw properties in memory, and their size. What goes out: the part of them that the broker acts on.
Rules: 1. `screening.py` is the definition. 2. Nothing is read behind the properties; positions may point there.
Not here: taking publishes together (`batches.pxi`).
"""

cdef enum:
    COMMON_BYTES_MAX = 2 + 1 + 1 + 256
    NESTED_MAX = 4
    # Property flags.
    CONTENT_TYPE = 1 << 15
    CONTENT_ENCODING = 1 << 14
    HEADERS = 1 << 13
    DELIVERY_MODE = 1 << 12
    PRIORITY = 1 << 11
    CORRELATION_ID = 1 << 10
    REPLY_TO = 1 << 9
    EXPIRATION = 1 << 8
    MESSAGE_ID = 1 << 7
    TIMESTAMP = 1 << 6
    TYPE = 1 << 5
    APP_ID = 1 << 3
    CLUSTER_ID = 1 << 2
    KEPT = DELIVERY_MODE | PRIORITY | EXPIRATION
    # A claimed user, and flags that the basic class has not.
    BY_ITSELF = 1 << 4 | 3

cdef const char* REPLY_TO_NAME = b"amq.rabbitmq.reply-to"


cdef struct Common:
    int64_t size
    unsigned char octets[COMMON_BYTES_MAX]


cdef inline int64_t skip_short(Source raw, int64_t at, int64_t size) noexcept nogil:
    """Behind the short string at `at`; -1: there is none."""
    return at + 1 + raw[at] if at < size else -1


cdef bint common_of(Source raw, int64_t size, Common* common) noexcept nogil:
    """What `screening.common_of` gives for these raw properties, of two octets at least; False: None."""
    cdef uint32_t flags = load16(raw)
    cdef int64_t at = 2, stop
    cdef unsigned char* to = common.octets
    if flags & BY_ITSELF:
        return False
    to[0] = <unsigned char>((flags & KEPT) >> 8)
    to[1] = <unsigned char>((flags & KEPT) & 0xFF)
    common.size = 2
    if flags & CONTENT_TYPE and (at := skip_short(raw, at, size)) < 0:
        return False
    if flags & CONTENT_ENCODING and (at := skip_short(raw, at, size)) < 0:
        return False
    if flags & HEADERS:
        if size - at < 4:
            return False
        stop = at + 4 + load32(raw + at)
        if stop > size or not plain_table(raw, at + 4, stop, 0):
            return False
        at = stop
    if flags & DELIVERY_MODE:
        if at >= size:
            return False
        to[common.size] = raw[at]
        common.size += 1
        at += 1
    if flags & PRIORITY:
        if at >= size:
            return False
        to[common.size] = raw[at]
        common.size += 1
        at += 1
    if flags & CORRELATION_ID and (at := skip_short(raw, at, size)) < 0:
        return False
    if flags & REPLY_TO:
        stop = skip_short(raw, at, size)
        if stop < 0 or stop > size or (stop - at == 22 and memcmp(raw + at + 1, REPLY_TO_NAME, 21) == 0):
            return False
        at = stop
    if flags & EXPIRATION:
        stop = skip_short(raw, at, size)
        if stop < 0 or stop > size:
            return False
        memcpy(to + common.size, raw + at, <size_t>(stop - at))
        common.size += stop - at
        at = stop
    if flags & MESSAGE_ID and (at := skip_short(raw, at, size)) < 0:
        return False
    if flags & TIMESTAMP:
        at += 8
    if flags & TYPE and (at := skip_short(raw, at, size)) < 0:
        return False
    if flags & APP_ID and (at := skip_short(raw, at, size)) < 0:
        return False
    if flags & CLUSTER_ID and (at := skip_short(raw, at, size)) < 0:
        return False
    return at == size


cdef bint is_special(Source name, int64_t size) noexcept nogil:
    if size == 2:
        return memcmp(name, b"CC", 2) == 0
    if size == 3:
        return memcmp(name, b"BCC", 3) == 0
    return size == 7 and (memcmp(name, b"x-delay", 7) == 0 or memcmp(name, b"x-death", 7) == 0)


cdef bint plain_table(Source raw, int64_t at, int64_t end, int depth) noexcept nogil:
    """The entries at `at` up to `end` read, and none of the names is special."""
    cdef int64_t value_at
    while at < end:
        value_at = at + 1 + raw[at]
        if value_at >= end or (depth == 0 and is_special(raw + at + 1, value_at - at - 1)):
            return False
        at = value_end(raw, value_at, end, depth)
        if at < 0:
            return False
    return at == end


cdef bint plain_array(Source raw, int64_t at, int64_t end, int depth) noexcept nogil:
    while at < end:
        at = value_end(raw, at, end, depth)
        if at < 0:
            return False
    return at == end


cdef int64_t value_end(Source raw, int64_t at, int64_t end, int depth) noexcept nogil:
    """Where the value ends whose letter is at `at`, before `end`; -1 if it does not read. May be behind `end`."""
    cdef unsigned char letter = raw[at]
    cdef int64_t stop
    at += 1
    if letter == c"t" or letter == c"b" or letter == c"B":
        return at + 1
    if letter == c"s" or letter == c"u":
        return at + 2
    if letter == c"I" or letter == c"i" or letter == c"f":
        return at + 4
    if letter == c"l" or letter == c"L" or letter == c"d" or letter == c"T":
        return at + 8
    if letter == c"V" or letter == 0:
        return at
    if letter == c"D":
        return at + 5
    if end - at < 4:
        return -1
    stop = at + 4 + load32(raw + at)
    if stop > end:
        return -1
    if letter == c"S" or letter == c"x":
        return stop
    if depth == NESTED_MAX:
        return -1
    if letter == c"F" and plain_table(raw, at + 4, stop, depth + 1):
        return stop
    if letter == c"A" and plain_array(raw, at + 4, stop, depth + 1):
        return stop
    return -1
