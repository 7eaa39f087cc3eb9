/* The SEI messages of an access unit, as the parser of the simulated libnvcuvid reports them (H.264 and HEVC). */
#include <stdlib.h>
#include <string.h>

#include "nvcuvid.h"

enum { H264_SEI = 6, HEVC_PREFIX_SEI = 39, HEVC_SUFFIX_SEI = 40 };

static bool is_sei(cudaVideoCodec codec, int type) {
    if (codec == cudaVideoCodec_H264) {
        return type == H264_SEI;
    }
    return codec == cudaVideoCodec_HEVC && (type == HEVC_PREFIX_SEI || type == HEVC_SUFFIX_SEI);
}

/* Copies a NAL unit's payload without its emulation prevention bytes; returns the number of bytes. */
static size_t unescape(const uint8_t *from, size_t bytes, uint8_t *to) {
    size_t count = 0;
    int zeros = 0;
    for (size_t place = 0; place < bytes; place++) {
        if (zeros >= 2 && from[place] == 3) {
            zeros = 0;
            continue;
        }
        zeros = from[place] == 0 ? zeros + 1 : 0;
        to[count++] = from[place];
    }
    return count;
}

/* Reads a number that is written as bytes of 255 and a remainder; false if the data end before. */
static bool read_number(const uint8_t *data, size_t bytes, size_t *place, unsigned *number) {
    *number = 0;
    while (*place < bytes && data[*place] == 255) {
        *number += data[(*place)++];
    }
    if (*place >= bytes) {
        return false;
    }
    *number += data[(*place)++];
    return true;
}

/* Adds the messages of one payload, whose last byte is only a mark. */
static void add_messages(sei_messages *all, const uint8_t *data, size_t bytes) {
    size_t place = 0;
    unsigned type = 0;
    unsigned size = 0;
    while (place + 2 < bytes && all->count < SEI_MESSAGES_MOST && read_number(data, bytes, &place, &type) &&
           read_number(data, bytes, &place, &size) && size <= bytes - place) {
        all->messages[all->count++] = (sei_message){.type = (unsigned char)type, .bytes = size};
        memcpy(all->data + all->bytes, data + place, size);
        all->bytes += size;
        place += size;
    }
}

bool sei_read(cudaVideoCodec codec, const uint8_t *unit, size_t bytes, sei_messages *all) {
    const uint8_t *end = unit + bytes;
    size_t header = codec == cudaVideoCodec_H264 ? 1 : 2;
    uint8_t *payload = malloc(bytes);
    *all = (sei_messages){.data = malloc(bytes)};
    const uint8_t *nal = payload == NULL || all->data == NULL ? NULL : nal_next(unit, end);
    while (nal != NULL) {
        const uint8_t *next = nal_next(nal, end);
        const uint8_t *stop = next == NULL ? end : next - 3;
        if (is_sei(codec, nal_type(codec, nal)) && (size_t)(stop - nal) > header) {
            add_messages(all, payload, unescape(nal + header, (size_t)(stop - nal) - header, payload));
        }
        nal = next;
    }
    free(payload);
    return all->count > 0;
}
