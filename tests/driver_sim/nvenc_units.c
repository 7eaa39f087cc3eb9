/* Bitstream units: puts parameter sets, supplemental information and metadata at their places in a packet. */
#include "nvenc.h"

#include <stdlib.h>
#include <string.h>

#define OBU_METADATA_HEADER 0x2a /* type 5, with a size */
#define OBU_SEQUENCE_HEADER 1
#define OBU_TEMPORAL_DELIMITER 2
#define H264_SEI_NAL 6
#define HEVC_PREFIX_SEI_NAL 39
#define PAYLOAD_BYTE_MOST 255

bool nvenc_append(nvenc_bytes *bytes, const uint8_t *data, size_t size) {
    if (bytes->size + size > bytes->capacity) {
        size_t capacity = 2 * (bytes->size + size) + 256;
        uint8_t *grown = realloc(bytes->data, capacity);
        if (grown == NULL) {
            return false;
        }
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (size != 0) {
        memcpy(bytes->data + bytes->size, data, size);
    }
    bytes->size += size;
    return true;
}

static bool append_byte(nvenc_bytes *bytes, unsigned byte) {
    uint8_t value = (uint8_t)byte;
    return nvenc_append(bytes, &value, 1);
}

/* The payload type or size of an SEI message: as many bytes of 255 as fit, then the remainder. */
static bool append_long(nvenc_bytes *bytes, uint32_t value) {
    while (value >= PAYLOAD_BYTE_MOST) {
        if (!append_byte(bytes, PAYLOAD_BYTE_MOST)) {
            return false;
        }
        value -= PAYLOAD_BYTE_MOST;
    }
    return append_byte(bytes, value);
}

/* Adds the bytes that prevent start codes (H.264 section 7.4.1, HEVC section 7.4.2). */
static bool append_escaped(nvenc_bytes *bytes, const nvenc_bytes *raw) {
    unsigned zeros = 0;
    for (size_t i = 0; i < raw->size; i++) {
        if (zeros >= 2 && raw->data[i] <= 3) {
            if (!append_byte(bytes, 3)) {
                return false;
            }
            zeros = 0;
        }
        if (!append_byte(bytes, raw->data[i])) {
            return false;
        }
        zeros = raw->data[i] == 0 ? zeros + 1 : 0;
    }
    return true;
}

static bool append_sei(nvenc_bytes *bytes, nvenc_codec codec, const NV_ENC_SEI_PAYLOAD *payload) {
    static const uint8_t h264_start[] = {0, 0, 0, 1, H264_SEI_NAL};
    static const uint8_t hevc_start[] = {0, 0, 0, 1, HEVC_PREFIX_SEI_NAL << 1, 1};
    nvenc_bytes raw = {NULL, 0, 0};
    bool h264 = codec == NVENC_H264;
    bool done = append_long(&raw, payload->payloadType) && append_long(&raw, payload->payloadSize) &&
                nvenc_append(&raw, payload->payload, payload->payloadSize) && append_byte(&raw, 0x80) &&
                nvenc_append(bytes, h264 ? h264_start : hevc_start, h264 ? sizeof h264_start : sizeof hevc_start) &&
                append_escaped(bytes, &raw);
    free(raw.data);
    return done;
}

static bool append_leb128(nvenc_bytes *bytes, size_t value) {
    while (value >= 0x80) {
        if (!append_byte(bytes, 0x80 | (value & 0x7f))) {
            return false;
        }
        value >>= 7;
    }
    return append_byte(bytes, (unsigned)value);
}

static bool append_metadata(nvenc_bytes *bytes, const NV_ENC_SEI_PAYLOAD *payload) {
    nvenc_bytes raw = {NULL, 0, 0};
    bool done = append_leb128(&raw, payload->payloadType) &&
                nvenc_append(&raw, payload->payload, payload->payloadSize) && append_byte(&raw, 0x80) &&
                append_byte(bytes, OBU_METADATA_HEADER) && append_leb128(bytes, raw.size) &&
                nvenc_append(bytes, raw.data, raw.size);
    free(raw.data);
    return done;
}

bool nvenc_append_payload(nvenc_bytes *bytes, nvenc_codec codec, const NV_ENC_SEI_PAYLOAD *payload) {
    if (payload->payload == NULL && payload->payloadSize != 0) {
        return false;
    }
    return codec == NVENC_AV1 ? append_metadata(bytes, payload) : append_sei(bytes, codec, payload);
}

static bool append_delimiter(nvenc_bytes *out, nvenc_codec codec) {
    static const uint8_t h264[] = {0, 0, 0, 1, 9, 0xf0};
    static const uint8_t hevc[] = {0, 0, 0, 1, 0x46, 1, 0x50};
    return codec == NVENC_H264 ? nvenc_append(out, h264, sizeof h264) : nvenc_append(out, hevc, sizeof hevc);
}

/* The end of the OBU at `place`; the OBU's size field gives the length of the payload. */
static size_t obu_end(const AVPacket *packet, size_t place) {
    size_t size = (size_t)packet->size;
    size_t length = 0;
    size_t next = place + 1 + (packet->data[place] >> 2 & 1);
    for (unsigned shift = 0; next < size && shift < 32; shift += 7) {
        uint8_t byte = packet->data[next++];
        length |= (size_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            break;
        }
    }
    return next + length;
}

static unsigned obu_type(const AVPacket *packet, size_t place) {
    return packet->data[place] >> 3 & 0xf;
}

/* The bytes of an AV1 packet before metadata: the temporal delimiter and a sequence header. */
static size_t av1_beginning(const AVPacket *packet) {
    size_t place = 0;
    while (place < (size_t)packet->size && obu_type(packet, place) <= OBU_TEMPORAL_DELIMITER) {
        place = obu_end(packet, place);
    }
    return place <= (size_t)packet->size ? place : 0;
}

bool nvenc_append_sequence_header(nvenc_bytes *bytes, const AVPacket *packet) {
    for (size_t place = 0; place < (size_t)packet->size; place = obu_end(packet, place)) {
        if (obu_type(packet, place) == OBU_SEQUENCE_HEADER && obu_end(packet, place) <= (size_t)packet->size) {
            return nvenc_append(bytes, packet->data + place, obu_end(packet, place) - place);
        }
    }
    return false;
}

bool nvenc_assemble(nvenc_bytes *out, nvenc_codec codec, const AVPacket *packet, bool delimiter,
                    const uint8_t *headers, size_t headers_size, const nvenc_bytes *extra) {
    out->size = 0;
    size_t begun = codec == NVENC_AV1 ? av1_beginning(packet) : 0;
    return (codec == NVENC_AV1 || !delimiter || append_delimiter(out, codec)) &&
           nvenc_append(out, headers, headers_size) && nvenc_append(out, packet->data, begun) &&
           nvenc_append(out, extra->data, extra->size) &&
           nvenc_append(out, packet->data + begun, (size_t)packet->size - begun);
}
