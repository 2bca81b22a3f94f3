"""Numbers and frame heads in network order, octet by octet, for `compiled.pyx`.

What comes in: where to read or write. What goes out: numbers of the machine; octets.
Rules: nothing needs to be aligned; the caller knows that what is read or written is there.
Not here: what the numbers mean. This file is compiled into what includes it and is no module.

Source: AMQP 0-9-1 section 2.3.5 (frames).
"""

from libc.stdint cimport uint32_t, uint64_t

ctypedef const unsigned char* Source
ctypedef unsigned char* Target

cdef enum:
    METHOD = 1
    HEADER = 2
    BODY = 3
    FRAME_HEAD_BYTES = 7
    FRAME_OVERHEAD_BYTES = 8
    FRAME_END = 0xCE


cdef inline uint32_t load16(Source at) noexcept nogil:
    return <uint32_t>at[0] << 8 | at[1]


cdef inline uint32_t load32(Source at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint64_t load64(Source at) noexcept nogil:
    return <uint64_t>load32(at) << 32 | load32(at + 4)


cdef inline void store32(Target at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char>(value >> 24)
    at[1] = <unsigned char>(value >> 16 & 0xFF)
    at[2] = <unsigned char>(value >> 8 & 0xFF)
    at[3] = <unsigned char>(value & 0xFF)


cdef inline void store64(Target at, uint64_t value) noexcept nogil:
    store32(at, <uint32_t>(value >> 32))
    store32(at + 4, <uint32_t>value)


cdef inline Target store_head(Target at, int kind, uint32_t channel, uint32_t size) noexcept nogil:
    """A frame's type, channel and size; where its payload begins."""
    at[0] = <unsigned char>kind
    at[1] = <unsigned char>(channel >> 8 & 0xFF)
    at[2] = <unsigned char>(channel & 0xFF)
    store32(at + 3, size)
    return at + FRAME_HEAD_BYTES
