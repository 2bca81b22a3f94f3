"""Deliveries, as a part of `compiled.pyx`: from runs to the frames of basic.deliver and of contents.

What comes in: a run or a batch and which of its messages, a channel, the largest frame. What goes out: a new bytes object.
Rules: 1. its size is known before it is made, and every function that writes returns or is told where to go on;
2. a body that is in one frame and stays in one is copied with its end octet; any other goes through a `Reader`, which
does not trust the sizes in the data: a run can be made by hand.
Not here: `Run`, memory, checks of ranges (`compiled.pyx`).
"""


cdef struct Reader:
    Source at
    Source stop
    # Of the frame that `at` is in; its end octet is not counted.
    int64_t left


cdef Reader reader_of(Run run, int64_t i) noexcept:
    """At the first body frame of message i."""
    cdef Reader reader
    cdef Source message = <Source>PyBytes_AS_STRING(run.data) + run.start + i * run.stride
    reader.at = message + run.method_size + run.header_size
    reader.stop = message + run.stride
    reader.left = -1
    return reader


cdef int take(Reader* reader, Target to, int64_t wanted) except -1:
    """The next `wanted` octets of a body, from as many frames as they are in."""
    cdef int64_t size
    while wanted > 0:
        if reader.left <= 0:
            if reader.left == 0:
                reader.at += 1
            if reader.stop - reader.at < FRAME_OVERHEAD_BYTES:
                raise ValueError("a run's body is smaller than it says")
            reader.left = load32(reader.at + 3)
            reader.at += FRAME_HEAD_BYTES
            if reader.left > reader.stop - reader.at - 1:
                raise ValueError("a run's body frame is larger than its message")
            continue
        size = min(reader.left, wanted)
        memcpy(to, reader.at, <size_t>size)
        reader.at += size
        reader.left -= size
        to += size
        wanted -= size
    return 0


cdef inline int64_t framed_size(int64_t body_size, int64_t limit) noexcept nogil:
    """Of a body in frames of at most `limit` bytes of payload."""
    return body_size + (body_size + limit - 1) // limit * FRAME_OVERHEAD_BYTES


cdef Target store_body(Target to, Run run, int64_t i, uint32_t channel, int64_t limit) except NULL:
    """The body of message i in such frames; where it ends."""
    cdef Reader reader = reader_of(run, i)
    cdef int64_t left = size_of_body(run), size
    while left > 0:
        size = min(left, limit)
        to = store_head(to, BODY, channel, <uint32_t>size)
        take(&reader, to, size)
        to += size
        to[0] = FRAME_END
        to += 1
        left -= size
    return to


cdef int64_t payload_limit(int64_t channel, int64_t frame_max) except -1:
    """Bytes of body in one frame."""
    if not 0 <= channel <= 0xFFFF:
        raise OverflowError(f"a channel number is of 16 bits: {channel}")
    if frame_max <= FRAME_OVERHEAD_BYTES:
        raise ValueError(f"frames of {frame_max} bytes have no space for a body")
    return min(frame_max - FRAME_OVERHEAD_BYTES, SIZE_32_MAX)


def encode_deliveries(
    Run run not None,
    int64_t low,
    int64_t high,
    int64_t channel,
    bytes consumer not None,
    uint64_t tag,
    bint redelivered,
    int64_t frame_max,
):
    """The frames of basic.deliver for messages low..high-1 of the run; see `reference.encode_deliveries`."""
    check_range(run, low, high)
    cdef int64_t limit = payload_limit(channel, frame_max), count = high - low
    if count == 0:
        return b""
    if <uint64_t>(count - 1) > TAG_MAX - tag:
        raise OverflowError("a delivery tag is of 64 bits")
    if type(run) is Mixed:
        return mixed_deliveries(<Mixed>run, low, high, <uint32_t>channel, consumer, tag, redelivered, limit)
    cdef int64_t body_size = size_of_body(run), tag_at = 11 + PyBytes_GET_SIZE(consumer)
    cdef int64_t payload = tag_at + 2 + run.method_size - 15
    if payload > SIZE_32_MAX:
        raise OverflowError(f"a method frame of {payload} bytes")
    # All but the tags and the bodies is the same in the whole run.
    cdef int64_t same = payload + FRAME_OVERHEAD_BYTES + run.header_size
    cdef bint whole = run.body_frames == 0 or (run.body_frames == 1 and body_size <= limit)
    cdef int64_t each = same
    if run.body_frames:
        each += (body_size + FRAME_OVERHEAD_BYTES) if whole else framed_size(body_size, limit)
    if each > PY_SSIZE_T_MAX // count:
        raise MemoryError
    cdef bytes deliveries = new_bytes(each * count)
    cdef Target first = <Target>PyBytes_AS_STRING(deliveries), to = first
    store_same(to, run, <uint32_t>channel, consumer, <uint32_t>payload, redelivered)
    if whole and run.body_frames:
        store_head(to + same, BODY, <uint32_t>channel, <uint32_t>body_size)
        same += FRAME_HEAD_BYTES
    cdef Source body = <Source>PyBytes_AS_STRING(run.data) + run.start + low * run.stride
    body += run.method_size + run.header_size + FRAME_HEAD_BYTES
    cdef int64_t i
    for i in range(count):
        if i:
            memcpy(to, first, <size_t>same)
        store64(to + tag_at, tag + <uint64_t>i)
        if not whole:
            store_body(to + same, run, low + i, <uint32_t>channel, limit)
        elif run.body_frames:
            memcpy(to + same, body + i * run.stride, <size_t>(body_size + 1))
        to += each
    return deliveries


cdef void store_same(
    Target to, Run run, uint32_t channel, bytes consumer, uint32_t payload, bint redelivered
) noexcept:
    """Method and content header frame of a delivery, without its tag."""
    cdef Source frames = <Source>PyBytes_AS_STRING(run.data) + run.start
    cdef size_t size = <size_t>PyBytes_GET_SIZE(consumer)
    to = store_head(to, METHOD, channel, payload)
    store32(to, 0x003C003C)
    memcpy(to + 4, PyBytes_AS_STRING(consumer), size)
    to += 4 + size + 8
    to[0] = redelivered
    size = run.method_size - 15
    memcpy(to + 1, frames + 13, size)
    to += 1 + size
    to[0] = FRAME_END
    store_header(to + 1, run, 0, channel)


cdef Target store_header(Target to, Run run, int64_t i, uint32_t channel) noexcept:
    """The content header frame of message i for the channel; where it ends."""
    cdef Source header = <Source>PyBytes_AS_STRING(run.data) + run.start + i * run.stride + run.method_size
    to = store_head(to, HEADER, channel, <uint32_t>(run.header_size - FRAME_OVERHEAD_BYTES))
    memcpy(to, header + FRAME_HEAD_BYTES, <size_t>(run.header_size - FRAME_HEAD_BYTES))
    return to + run.header_size - FRAME_HEAD_BYTES


def encode_content(Run run not None, int64_t i, int64_t channel, int64_t frame_max):
    """Content header and body frames of message i, for the channel (basic.return, basic.get-ok)."""
    check_message(run, i)
    cdef int64_t limit = payload_limit(channel, frame_max)
    cdef const Place* place
    cdef bytes content
    if type(run) is Mixed:
        place = (<Mixed>run).places() + i
        content = new_bytes(place.header + framed_size(place.body, limit))
        store_content(
            <Target>PyBytes_AS_STRING(content),
            <Source>PyBytes_AS_STRING(run.data) + place.at + place.method,
            place,
            <uint32_t>channel,
            limit,
        )
        return content
    content = new_bytes(run.header_size + framed_size(size_of_body(run), limit))
    cdef Target to = store_header(<Target>PyBytes_AS_STRING(content), run, i, <uint32_t>channel)
    store_body(to, run, i, <uint32_t>channel, limit)
    return content


def encode_ack(int64_t channel, uint64_t tag, bint multiple):
    """A basic.ack frame, as a confirm."""
    if not 0 <= channel <= 0xFFFF:
        raise OverflowError(f"a channel number is of 16 bits: {channel}")
    cdef bytes ack = new_bytes(ACK_FRAME_BYTES)
    cdef Target to = <Target>PyBytes_AS_STRING(ack)
    to = store_head(to, METHOD, <uint32_t>channel, ACK_FRAME_BYTES - FRAME_OVERHEAD_BYTES)
    store32(to, 0x003C0050)
    store64(to + 4, tag)
    to[12] = multiple
    to[13] = FRAME_END
    return ack


cdef bytes mixed_deliveries(
    Mixed batch,
    int64_t low,
    int64_t high,
    uint32_t channel,
    bytes consumer,
    uint64_t tag,
    bint redelivered,
    int64_t limit,
):
    """See `encode_deliveries`; `limit`: bytes of body in one frame."""
    cdef const Place* place = batch.places()
    cdef Source data = <Source>PyBytes_AS_STRING(batch.data), frames
    cdef int64_t tag_size = PyBytes_GET_SIZE(consumer), i, size, nbytes = 0
    cdef uint64_t first = tag
    for i in range(low, high):
        # Both methods have the names, and what is before and behind them has always the same size.
        nbytes += 21 + tag_size + place[i].method - 15 + place[i].header + framed_size(place[i].body, limit)
    cdef bytes deliveries = new_bytes(nbytes)
    cdef Target to = <Target>PyBytes_AS_STRING(deliveries)
    for i in range(low, high):
        frames = data + place[i].at
        size = place[i].method - 15
        to = store_head(to, METHOD, channel, <uint32_t>(13 + tag_size + size))
        store32(to, 0x003C003C)
        memcpy(to + 4, PyBytes_AS_STRING(consumer), <size_t>tag_size)
        to += 4 + tag_size
        store64(to, first + <uint64_t>(i - low))
        to[8] = redelivered
        memcpy(to + 9, frames + 13, <size_t>size)
        to += 9 + size
        to[0] = FRAME_END
        to = store_content(to + 1, frames + place[i].method, place + i, channel, limit)
    return deliveries


cdef Target store_content(
    Target to, Source content, const Place* place, uint32_t channel, int64_t limit
) noexcept nogil:
    """Content header and body frames of the message, for the channel; where they end."""
    cdef int64_t left = place.body, size
    to = store_head(to, HEADER, channel, <uint32_t>(place.header - FRAME_OVERHEAD_BYTES))
    memcpy(to, content + FRAME_HEAD_BYTES, place.header - FRAME_HEAD_BYTES)
    to += place.header - FRAME_HEAD_BYTES
    content += place.header + FRAME_HEAD_BYTES
    while left > 0:
        size = min(left, limit)
        to = store_head(to, BODY, channel, <uint32_t>size)
        memcpy(to, content, <size_t>size)
        to += size
        to[0] = FRAME_END
        to += 1
        content += size
        left -= size
    return to
