/*
 * Shared by the sources of the simulated libnvidia-encode.so.1.
 *
 * nvenc.c          the entry points
 * nvenc_queries.c  the entry points that query the hardware's capabilities
 * nvenc_session.c  sessions, their buffers, and the way of a picture through them
 * nvenc_tables.c   the simulated hardware: GUIDs, formats, capabilities, presets
 * nvenc_check.c    turns NV_ENC_INITIALIZE_PARAMS into nvenc_settings, or refuses it
 * nvenc_codec.c    the encoders: libavcodec's libx264, libx265 and libaom
 * nvenc_frame.c    converts surfaces of all formats to libavcodec's pictures
 * nvenc_units.c    puts parameter sets, SEI and metadata units into the bitstream
 * nvenc_trace.c    writes every field of a configuration into the trace
 */
#ifndef CODECFLEET_DRIVER_SIM_NVENC_H
#define CODECFLEET_DRIVER_SIM_NVENC_H

#include "nvenc_layout.h"
#include "scenario.h"

#include <libavcodec/avcodec.h>
#include <pthread.h>

typedef enum nvenc_codec { NVENC_H264, NVENC_HEVC, NVENC_AV1, NVENC_CODECS } nvenc_codec;

/* The work of an encoder: a checked configuration. */
typedef struct nvenc_settings {
    nvenc_codec codec;
    unsigned width;
    unsigned height;
    unsigned rate_num;
    unsigned rate_den;
    unsigned preset; /* 1 to 7 */
    unsigned tuning;
    int chroma; /* 420, 422 or 444 */
    int bit_depth;
    layout_config config;
} nvenc_settings;

/* The caller's picture, in memory of the simulated device. */
typedef struct nvenc_surface {
    uint8_t *data;
    unsigned width;
    unsigned height;
    unsigned pitch; /* bytes */
    uint32_t format; /* NV_ENC_BUFFER_FORMAT */
} nvenc_surface;

/* A buffer of bytes that grows. */
typedef struct nvenc_bytes {
    uint8_t *data;
    size_t size;
    size_t capacity;
} nvenc_bytes;

/*
 * nvenc_tables.c
 */

const char *nvenc_codec_name(nvenc_codec codec); /* as in sim_capability */
const GUID *nvenc_codec_guid(nvenc_codec codec);
bool nvenc_same_guid(const GUID *left, const GUID *right);

/* The codec of a GUID that the device can encode; NVENC_CODECS if it can encode none with this GUID. */
nvenc_codec nvenc_find_codec(const sim_device *device, const GUID *guid);

/* The header's name of a codec, preset or profile GUID; for any other GUID, "GUID:" and the first 8 digits. */
typedef struct nvenc_name {
    char text[64];
} nvenc_name;
nvenc_name nvenc_guid_name(const GUID *guid);

const GUID *nvenc_preset_guid(unsigned preset);    /* 1 to 7 */
unsigned nvenc_find_preset(const GUID *guid);      /* 1 to 7; 0: none */
unsigned nvenc_profiles(nvenc_codec codec, const GUID **first);
unsigned nvenc_formats(const sim_device *device, nvenc_codec codec, uint32_t *out, unsigned most);
int nvenc_capability(const sim_device *device, nvenc_codec codec, int capability);

/* The settings of the presets. `version` is that of the caller's NV_ENC_CONFIG: 8 until 12.1, then 9. */
void nvenc_fill_preset(nvenc_codec codec, unsigned preset, unsigned tuning, unsigned version, layout_config *out);

/*
 * nvenc_check.c
 */

/* Checks versions, sizes, ranges and the device's capabilities. After a refusal, `why` is a static text. */
NVENCSTATUS nvenc_check(const sim_device *device, const layout_initialize_params *params, nvenc_settings *out,
                        const char **why);

/* The version of a structure, without the version of the interface: 5 for NVENCAPI_STRUCT_VERSION(5). */
unsigned nvenc_struct_version(uint32_t version);

/* Whether a version word belongs to an interface that this driver has. */
bool nvenc_knows_version(uint32_t version);

/* The number that NvEncodeAPIGetMaxSupportedVersion gives for the machine's driver: 0xD0 is 13.0. */
uint32_t nvenc_max_version(void);

/*
 * nvenc_frame.c
 */

bool nvenc_format_known(uint32_t format);
int nvenc_format_chroma(uint32_t format);    /* 420, 422 or 444; RGB is taken as 420 */
int nvenc_format_bit_depth(uint32_t format); /* 8 or 10 */
bool nvenc_format_is_rgb(uint32_t format);
size_t nvenc_surface_bytes(const nvenc_surface *surface);
unsigned nvenc_row_bytes(uint32_t format, unsigned width);

/* A libavcodec picture with the surface's contents; NULL without memory, or if the format does not fit. */
AVFrame *nvenc_frame_of(const nvenc_surface *surface, const nvenc_settings *settings);

/*
 * nvenc_codec.c
 */

typedef struct nvenc_encoder nvenc_encoder;

nvenc_encoder *nvenc_encoder_open(const nvenc_settings *settings);
void nvenc_encoder_close(nvenc_encoder *encoder);

/* Takes a picture (NULL: no more will come). The pts must rise. */
bool nvenc_encoder_send(nvenc_encoder *encoder, const AVFrame *frame);

/* The next packet in coding order; false if there is none yet, or none any more. */
bool nvenc_encoder_receive(nvenc_encoder *encoder, AVPacket *packet);

/* Changes the rate control of a running encoder; false if these settings need a new encoder. */
bool nvenc_encoder_adjust(nvenc_encoder *encoder, const nvenc_settings *settings);

/* Parameter sets: Annex B for H.264 and HEVC, a sequence header OBU for AV1. */
const uint8_t *nvenc_encoder_headers(const nvenc_encoder *encoder, size_t *size);

NV_ENC_PIC_TYPE nvenc_packet_type(const AVPacket *packet);
uint32_t nvenc_packet_qp(const AVPacket *packet);

/*
 * nvenc_units.c
 */

bool nvenc_append(nvenc_bytes *bytes, const uint8_t *data, size_t size);

/* Appends the unit that carries a payload: an SEI unit, or a metadata OBU. */
bool nvenc_append_payload(nvenc_bytes *bytes, nvenc_codec codec, const NV_ENC_SEI_PAYLOAD *payload);

/* Appends an AV1 packet's sequence header OBU; false if the packet has none. */
bool nvenc_append_sequence_header(nvenc_bytes *bytes, const AVPacket *packet);

/* Puts a packet together: delimiter, headers, `extra` units, and then the packet's own units. */
bool nvenc_assemble(nvenc_bytes *out, nvenc_codec codec, const AVPacket *packet, bool delimiter,
                    const uint8_t *headers, size_t headers_size, const nvenc_bytes *extra);

/*
 * nvenc_session.c
 */

/*
 * A bitstream buffer. IDLE -> PENDING when a picture is submitted with it, PENDING -> READY when it gets the next
 * packet in coding order, READY -> LOCKED and LOCKED -> IDLE when the caller locks and unlocks it.
 */
typedef enum nvenc_output_state { NVENC_IDLE, NVENC_PENDING, NVENC_READY, NVENC_LOCKED } nvenc_output_state;

typedef struct nvenc_output {
    struct nvenc_output *next;          /* in the list of all buffers of the session */
    struct nvenc_output *next_in_queue; /* in the list of pending buffers */
    nvenc_output_state state;
    nvenc_bytes bytes;
    uint64_t timestamp;
    uint64_t duration;
    uint32_t coded;   /* number in coding order */
    uint32_t display; /* number in the order of submission */
    NV_ENC_PIC_TYPE type;
    uint32_t qp;
} nvenc_output;

/* An input buffer of the library, or a resource of the caller. */
typedef struct nvenc_input {
    struct nvenc_input *next;
    nvenc_surface surface;
    bool own;    /* memory that belongs to the library */
    bool usable; /* the library's buffer that is not locked, or a mapped resource */
} nvenc_input;

/* A picture in flight: the values that its packet must repeat. */
typedef struct nvenc_picture {
    struct nvenc_picture *next;
    int64_t pts;
    uint64_t timestamp;
    uint64_t duration;
    bool with_headers;
    bool cut; /* a fault: its bitstream is cut short */
    nvenc_bytes payloads;
} nvenc_picture;

typedef struct nvenc_held {
    struct nvenc_held *next;
    AVFrame *frame;
} nvenc_held;

typedef struct nvenc_session {
    struct nvenc_session *next;
    pthread_mutex_t lock;
    const sim_device *device;
    void *context;      /* pictures are written in the streams of this context */
    void *input_stream; /* NULL: the default stream */
    int number; /* the number from sim_session_open */
    bool initialized;
    nvenc_settings settings;
    unsigned width_max; /* the largest size to which it may be reconfigured */
    unsigned height_max;
    nvenc_encoder *encoder; /* NULL after the end of a stream: the next picture opens another */
    bool begins;            /* the encoder has given no packet yet */
    bool force_idr;
    nvenc_output *outputs;
    nvenc_output *queue_first;
    nvenc_output *queue_last;
    nvenc_input *inputs;
    nvenc_picture *pictures;
    nvenc_held *held_first; /* pictures held back by the look-ahead */
    nvenc_held *held_last;
    unsigned held_count;
    int64_t next_pts;
    uint32_t coded;
    const char *error;
} nvenc_session;

/* A session for the device; NULL with `status` if there is no encoder, or no room for another session. */
nvenc_session *nvenc_session_open(const sim_device *device, NVENCSTATUS *status);
void nvenc_session_close(nvenc_session *session);

/* The session of a handle; NULL if it is closed or never existed. */
nvenc_session *nvenc_session_of(const void *handle);

NVENCSTATUS nvenc_session_initialize(nvenc_session *session, const layout_initialize_params *params);
NVENCSTATUS nvenc_session_reconfigure(nvenc_session *session, const layout_initialize_params *params, bool force_idr);

/* Opens the encoder if it is not open; then its parameter sets are known. */
NVENCSTATUS nvenc_session_prepare(nvenc_session *session);

nvenc_output *nvenc_session_add_output(nvenc_session *session);
nvenc_output *nvenc_session_output(const nvenc_session *session, const void *handle);
bool nvenc_session_remove_output(nvenc_session *session, const void *handle);
nvenc_input *nvenc_session_add_input(nvenc_session *session, const nvenc_surface *surface, bool own);
nvenc_input *nvenc_session_input(const nvenc_session *session, const void *handle);
bool nvenc_session_remove_input(nvenc_session *session, const void *handle);

NVENCSTATUS nvenc_session_encode(nvenc_session *session, const NV_ENC_PIC_PARAMS *params, bool cut);
NVENCSTATUS nvenc_session_finish(nvenc_session *session);

/*
 * nvenc.c: the beginning and end of every entry point
 */

/* A call in flight, with the results of nvenc_enter. */
typedef struct nvenc_call {
    nvenc_session *session;
    bool cut; /* a fault: the bitstream must be cut short */
} nvenc_call;

/* Counts the call, executes faults, and locks the session. The caller must leave only if this succeeds. */
NVENCSTATUS nvenc_enter(const char *function, void *encoder, nvenc_call *out);

/* Unlocks the session; returns `status`. */
NVENCSTATUS nvenc_leave(const nvenc_call *call, NVENCSTATUS status);

/*
 * nvenc_queries.c
 */

void nvenc_fill_queries(NV_ENCODE_API_FUNCTION_LIST *list);

/*
 * nvenc_trace.c
 */

void nvenc_trace_settings(const char *function, const layout_initialize_params *params, const layout_config *config);

#endif
