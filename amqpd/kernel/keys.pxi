"""Numbers for the different keys of a batch, as a part of `batches.pxi`.

What comes in: a message's place. What goes out: the number of its key.
Rules: 1. Looking for a key takes a bounded number of steps, whatever keys a client chooses; where very many have one
hash, a key may get a second number. 2. The table is emptied by counting scans, not by writing.
Not here: what a key is (`mixed.py`).
"""

cdef enum:
    # Twice as many as messages; a power of two.
    SLOTS = 8192
    PROBES_MAX = 16


cdef struct Slot:
    # Of which scan it is; the others are empty.
    uint64_t scan
    uint64_t hash
    uint32_t key


cdef Slot[SLOTS] SLOT_OF
# By its number, the first message with a key.
cdef uint32_t[MESSAGES_MAX] FIRST_WITH
cdef uint64_t SCANS = 0
# Clients choose keys and cannot know this.
cdef uint64_t HASH_SEED = <uint64_t>(hash(b"amqpd's routing keys") & 0x7FFFFFFFFFFFFFFF) | 1


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
