/*
 * Shared by the sources of the simulated libnvcuvid.
 *
 * A picture is decoded by libavcodec when the parser has its access unit, and is passed on by reference: the parser
 * gives it to the decode callback inside CUVIDPICPARAMS, cuvidDecodePicture puts it on a surface, and
 * cuvidMapVideoFrame64 writes it into device memory in the requested surface format.
 */
#ifndef CODECFLEET_DRIVER_SIM_NVCUVID_H
#define CODECFLEET_DRIVER_SIM_NVCUVID_H

#include <ffnvcodec/dynlink_cuda.h>
/* the header names the version of CUDA at its own time; device pointers have 64 bits in any case */
#include <ffnvcodec/dynlink_cuviddec.h>
#include <ffnvcodec/dynlink_nvcuvid.h>
#include <libavutil/frame.h>
#include <stdatomic.h>

#include "scenario.h"

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    MAP_FAILED_STATUS = 205,
    NOT_SUPPORTED = 801
};

/* Surface formats that are newer than the public header. */
#define SURFACE_NV16 4
#define SURFACE_P216 5

typedef struct picture {
    atomic_int holders;
    AVFrame *frame; /* of libavcodec, or grey if there was nothing to decode from */
    int64_t timestamp;
    int surface;
    bool is_listed;   /* the parser still has it */
    bool is_waiting;  /* waits to be displayed */
    bool is_left_out; /* never displayed, as cuvidDecodePicture was told */
    bool is_corrupt;  /* shown with an error */
    bool is_progressive;
    bool is_top_field_first;
    int repeated_fields;
} picture;

picture *picture_new(AVFrame *frame, int64_t timestamp); /* takes the frame; NULL without memory */
picture *picture_hold(picture *each);
void picture_drop(picture *each); /* may be NULL */

/* Hides a picture in the reserved part of its parameters, and finds it there; NULL if there is none. */
void picture_hide(CUVIDPICPARAMS *parameters, picture *each);
picture *picture_hidden(const CUVIDPICPARAMS *parameters);

/* The part of a picture, in pixels of its coded frame, and the surface that it is written to. */
typedef struct surface_layout {
    int format; /* cudaVideoSurfaceFormat */
    unsigned left;
    unsigned top;
    unsigned shown_width;
    unsigned shown_height;
    unsigned width; /* of the surface; a part of another size is scaled */
    unsigned height;
    size_t pitch;
} surface_layout;

/* The bytes of one sample of a surface format, and of a whole surface. */
size_t surface_sample_bytes(int format);
size_t surface_bytes(const surface_layout *layout);

/* Writes a picture. False if its chroma sampling is not that of the format. */
bool surface_write(const picture *each, const surface_layout *layout, unsigned char *to);

/* NAL units of Annex B: the next one, after its start code, or NULL; and the type of a unit. */
const uint8_t *nal_next(const uint8_t *place, const uint8_t *end);
int nal_type(cudaVideoCodec codec, const uint8_t *nal);

#define SEI_MESSAGES_MOST 64

/* As in newer headers of the SDK: the argument of the parser's SEI callback, the first reserved pointer here. */
typedef struct sei_message {
    unsigned char type;
    unsigned char reserved[3];
    unsigned bytes;
} sei_message;

typedef struct sei_message_info {
    void *data;
    sei_message *messages;
    unsigned count;
    unsigned picture_index;
} sei_message_info;

typedef int (*sei_callback)(void *, sei_message_info *);

/* All messages of an access unit; the payloads follow each other. */
typedef struct sei_messages {
    uint8_t *data; /* the caller frees it */
    size_t bytes;
    sei_message messages[SEI_MESSAGES_MOST];
    unsigned count;
} sei_messages;

/* Tells whether there are any messages; the caller frees `data` in any case. */
bool sei_read(cudaVideoCodec codec, const uint8_t *unit, size_t bytes, sei_messages *all);

/* A codec's name in scenarios; NULL for a codec that no NVDEC decodes. */
const char *codec_name(cudaVideoCodec codec);

#endif
