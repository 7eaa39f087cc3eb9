/*
 * The simulated libnvcuvid.so.1: the capabilities of the NVDEC of the scenario's device, and decoders. The parser is in
 * nvcuvid_parser.c. This is a simulator for tests: libavcodec decodes, and measured speeds mean nothing.
 */
#define _GNU_SOURCE
#include "deferred_work.h"
#include "external_work.h"
#include "nvcuvid.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SURFACES_MOST 64
#define OUTPUTS_MOST 64
#define PITCH_BYTES 512u
#define JPEG_WIDTH_MOST 32768
#define JPEG_HEIGHT_MOST 16384

/* Functions of the simulated libcuda. */
int cuCtxPushCurrent_v2(CUcontext context);
int cuCtxPopCurrent_v2(CUcontext *context);

typedef struct output_surface {
    unsigned char *start;
    bool is_mapped;
} output_surface;

typedef struct decoder {
    pthread_mutex_t lock;
    const sim_device *device;
    CUVIDDECODECREATEINFO about;
    surface_layout layout;
    size_t output_bytes; /* of one output surface */
    void *memory;        /* the memory that decode surfaces would take */
    picture *surfaces[SURFACES_MOST];
    output_surface outputs[OUTPUTS_MOST];
    int session;
} decoder;

struct _CUcontextlock_st {
    pthread_mutex_t lock;
    CUcontext context;
};

#define ENTER_ON(name, device)                                                                                         \
    do {                                                                                                               \
        int said = SUCCESS;                                                                                            \
        if (sim_enter(name, (device) == NULL ? SIM_NO_DEVICE : (device)->index, &said) == SIM_STATUS) {                \
            return said;                                                                                               \
        }                                                                                                              \
    } while (0)

/*
 * Capabilities
 */

static const struct {
    cudaVideoCodec codec;
    const char *name;
    unsigned short width_min;
    unsigned short height_min;
} CODECS[] = {
    {cudaVideoCodec_MPEG2, "mpeg2", 48, 16}, {cudaVideoCodec_MPEG4, "mpeg4", 48, 16},
    {cudaVideoCodec_VC1, "vc1", 48, 16},     {cudaVideoCodec_H264, "h264", 48, 16},
    {cudaVideoCodec_JPEG, "jpeg", 64, 64},   {cudaVideoCodec_HEVC, "hevc", 144, 144},
    {cudaVideoCodec_VP8, "vp8", 48, 16},     {cudaVideoCodec_VP9, "vp9", 128, 128},
    {cudaVideoCodec_AV1, "av1", 128, 128},
};

static int codec_place(cudaVideoCodec codec) {
    for (int number = 0; number < (int)(sizeof CODECS / sizeof *CODECS); number++) {
        if (CODECS[number].codec == codec) {
            return number;
        }
    }
    return -1;
}

const char *codec_name(cudaVideoCodec codec) {
    int place = codec_place(codec);
    return place < 0 ? NULL : CODECS[place].name;
}

static int chroma_number(cudaVideoChromaFormat chroma) {
    switch (chroma) {
    case cudaVideoChromaFormat_422:
        return 422;
    case cudaVideoChromaFormat_444:
        return 444;
    default:
        return 420; /* pictures without chroma are decoded as pictures with grey chroma */
    }
}

/* The capability of a device's NVDEC for a case; false if there is none. Every NVDEC has JPEG, which no table lists. */
static bool find_case(const sim_device *device, cudaVideoCodec codec, int chroma, int depth, sim_capability *found) {
    const char *name = codec_name(codec);
    if (name == NULL || device->engines[SIM_NVDEC] == 0) {
        return false;
    }
    const sim_capability *listed = sim_find_capability(device, false, name, chroma, depth);
    if (listed != NULL) {
        *found = *listed;
        return true;
    }
    *found = (sim_capability){.width_max = JPEG_WIDTH_MOST, .height_max = JPEG_HEIGHT_MOST};
    return codec == cudaVideoCodec_JPEG && chroma == 420 && depth == 8;
}

static unsigned short output_formats(int chroma, int depth) {
    int eight = chroma == 444   ? cudaVideoSurfaceFormat_YUV444
                : chroma == 422 ? SURFACE_NV16
                                : cudaVideoSurfaceFormat_NV12;
    return (unsigned short)((1u << eight) | (depth > 8 ? 1u << (eight + 1) : 0u));
}

SIM_EXPORT int cuvidGetDecoderCaps(CUVIDDECODECAPS *caps) {
    const sim_device *device = sim_cuda_device(NULL);
    ENTER_ON("cuvidGetDecoderCaps", device);
    if (device == NULL) {
        return INVALID_CONTEXT;
    }
    int chroma = chroma_number(caps->eChromaFormat);
    int depth = (int)caps->nBitDepthMinus8 + 8;
    sim_capability found;
    memset(&caps->bIsSupported, 0, sizeof *caps - offsetof(CUVIDDECODECAPS, bIsSupported));
    if (!find_case(device, caps->eCodecType, chroma, depth, &found)) {
        return SUCCESS;
    }
    int place = codec_place(caps->eCodecType);
    caps->bIsSupported = 1;
    /* JPEG has other engines, of which one is reported, whatever the GPU has: as on an H200. */
    caps->nNumNVDECs = caps->eCodecType == cudaVideoCodec_JPEG ? 1 : (unsigned char)device->engines[SIM_NVDEC];
    caps->nOutputFormatMask = output_formats(chroma, depth);
    caps->nMaxWidth = found.width_max;
    caps->nMaxHeight = found.height_max;
    caps->nMaxMBCount = found.width_max / 16 * (found.height_max / 16);
    caps->nMinWidth = CODECS[place].width_min;
    caps->nMinHeight = CODECS[place].height_min;
    return SUCCESS;
}

/*
 * Decoders
 */

static size_t pitch_of(const surface_layout *layout) {
    size_t row = layout->width * surface_sample_bytes(layout->format);
    return (row + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
}

/* The display area is shown, or the whole picture if there is none. Callers round sizes to even numbers: no scaling. */
static surface_layout layout_of(const CUVIDDECODECREATEINFO *about) {
    surface_layout layout = {.format = about->OutputFormat,
                             .shown_width = (unsigned)about->ulWidth,
                             .shown_height = (unsigned)about->ulHeight,
                             .width = (unsigned)about->ulTargetWidth,
                             .height = (unsigned)about->ulTargetHeight};
    if (about->display_area.right > about->display_area.left && about->display_area.bottom > about->display_area.top) {
        layout.left = (unsigned)about->display_area.left;
        layout.top = (unsigned)about->display_area.top;
        layout.shown_width = (unsigned)(about->display_area.right - about->display_area.left);
        layout.shown_height = (unsigned)(about->display_area.bottom - about->display_area.top);
    }
    if (layout.width - layout.shown_width + 1 <= 2 && layout.height - layout.shown_height + 1 <= 2) {
        layout.shown_width = layout.width;
        layout.shown_height = layout.height;
    }
    layout.pitch = pitch_of(&layout);
    return layout;
}

static unsigned long larger(unsigned long one, unsigned long other) {
    return one > other ? one : other;
}

/* Takes the memory that NVDEC would take for the largest size to which the decoder may be reconfigured. */
static int take_memory(decoder *each) {
    const CUVIDDECODECREATEINFO *about = &each->about;
    surface_layout most = each->layout;
    most.width = (unsigned)larger(about->ulTargetWidth, about->ulMaxWidth);
    most.height = (unsigned)larger(about->ulTargetHeight, about->ulMaxHeight);
    most.pitch = pitch_of(&most);
    each->output_bytes = surface_bytes(&most);
    size_t bytes = surface_bytes(&most) * about->ulNumDecodeSurfaces;
    each->memory = sim_memory_alloc(each->device, bytes, SIM_DEVICE_MEMORY, (uint64_t)(uintptr_t)each);
    for (size_t number = 0; each->memory != NULL && number < about->ulNumOutputSurfaces; number++) {
        each->outputs[number].start =
            sim_memory_alloc(each->device, each->output_bytes, SIM_DEVICE_MEMORY, (uint64_t)(uintptr_t)each);
        if (each->outputs[number].start == NULL) {
            return OUT_OF_MEMORY;
        }
    }
    return each->memory == NULL ? OUT_OF_MEMORY : SUCCESS;
}

static int check_request(const sim_device *device, const CUVIDDECODECREATEINFO *about) {
    sim_capability found;
    int chroma = chroma_number(about->ChromaFormat);
    if (!find_case(device, about->CodecType, chroma, (int)about->bitDepthMinus8 + 8, &found)) {
        return NOT_SUPPORTED;
    }
    bool is_whole = about->ulTargetWidth > 0 && about->ulTargetHeight > 0 && about->ulNumDecodeSurfaces > 0 &&
                    about->ulNumDecodeSurfaces <= SURFACES_MOST && about->ulNumOutputSurfaces > 0 &&
                    about->ulNumOutputSurfaces <= OUTPUTS_MOST;
    if (!is_whole) {
        return INVALID_VALUE;
    }
    unsigned width = (unsigned)larger(about->ulWidth, about->ulMaxWidth);
    unsigned height = (unsigned)larger(about->ulHeight, about->ulMaxHeight);
    return width > found.width_max || height > found.height_max ? NOT_SUPPORTED : SUCCESS;
}

static void free_decoder(decoder *each) {
    sim_cuda_finish(SIM_EVERY_STREAM);
    for (int number = 0; number < SURFACES_MOST; number++) {
        picture_drop(each->surfaces[number]);
    }
    sim_memory_free_of((uint64_t)(uintptr_t)each);
    sim_session_close(each->session);
    pthread_mutex_destroy(&each->lock);
    free(each);
}

static int new_decoder(const sim_device *device, const CUVIDDECODECREATEINFO *about, decoder **made) {
    decoder *each = calloc(1, sizeof *each);
    if (each == NULL) {
        return OUT_OF_MEMORY;
    }
    *each = (decoder){.device = device, .about = *about, .layout = layout_of(about), .session = -1};
    pthread_mutex_init(&each->lock, NULL);
    int said = take_memory(each);
    if (said != SUCCESS) {
        free_decoder(each);
        return said;
    }
    each->session = sim_session_open(device, SIM_NVDEC, codec_name(about->CodecType), (unsigned)about->ulWidth,
                                     (unsigned)about->ulHeight);
    *made = each;
    return SUCCESS;
}

SIM_EXPORT int cuvidCreateDecoder(CUvideodecoder *handle, CUVIDDECODECREATEINFO *about) {
    const sim_device *device = sim_cuda_device(NULL);
    ENTER_ON("cuvidCreateDecoder", device);
    if (device == NULL) {
        return INVALID_CONTEXT;
    }
    const char *name = codec_name(about->CodecType);
    sim_trace("cuvidCreateDecoder",
              "codec=%s width=%lu height=%lu width_most=%lu height_most=%lu depth=%lu surfaces=%lu outputs=%lu "
              "format=%d target=%lux%lu deinterlace=%d",
              name == NULL ? "none" : name, about->ulWidth, about->ulHeight, about->ulMaxWidth, about->ulMaxHeight,
              about->bitDepthMinus8 + 8, about->ulNumDecodeSurfaces, about->ulNumOutputSurfaces,
              (int)about->OutputFormat, about->ulTargetWidth, about->ulTargetHeight, (int)about->DeinterlaceMode);
    int said = check_request(device, about);
    return said == SUCCESS ? new_decoder(device, about, (decoder **)handle) : said;
}

SIM_EXPORT int cuvidDestroyDecoder(CUvideodecoder handle) {
    decoder *each = handle;
    ENTER_ON("cuvidDestroyDecoder", each == NULL ? NULL : each->device);
    if (each == NULL) {
        return INVALID_VALUE;
    }
    free_decoder(each);
    return SUCCESS;
}

static void put_on_surface(decoder *each, int number, picture *shown) {
    pthread_mutex_lock(&each->lock);
    picture_drop(each->surfaces[number]);
    each->surfaces[number] = picture_hold(shown);
    pthread_mutex_unlock(&each->lock);
    sim_session_count_frame(each->session);
}

/* Faults that concern only pictures of one size: a stream that breaks its decoder. */
static bool meets_size(const decoder *each, int *status) {
    char name[SIM_TEXT_BYTES];
    snprintf(name, sizeof name, "cuvidDecodePicture@%lux%lu", each->about.ulTargetWidth, each->about.ulTargetHeight);
    return sim_meet(name, each->device->index, status) == SIM_STATUS;
}

SIM_EXPORT int cuvidDecodePicture(CUvideodecoder handle, CUVIDPICPARAMS *parameters) {
    decoder *each = handle;
    int status = SUCCESS;
    int index = each == NULL ? SIM_NO_DEVICE : each->device->index;
    sim_verdict verdict = sim_enter("cuvidDecodePicture", index, &status);
    if (verdict == SIM_STATUS) {
        return status;
    }
    if (each != NULL && meets_size(each, &status)) {
        return status;
    }
    picture *shown = each == NULL || parameters == NULL ? NULL : picture_hidden(parameters);
    if (shown == NULL || parameters->CurrPicIdx < 0 ||
        (unsigned long)parameters->CurrPicIdx >= each->about.ulNumDecodeSurfaces) {
        return INVALID_VALUE;
    }
    sim_sleep_us(each->device->decode_picture_us);
    shown->is_left_out = shown->is_left_out || verdict == SIM_SHORT;
    shown->is_corrupt = shown->is_corrupt || verdict == SIM_CORRUPT;
    put_on_surface(each, parameters->CurrPicIdx, shown);
    return SUCCESS;
}

static picture *surface_at(decoder *each, int number) {
    return number >= 0 && number < SURFACES_MOST ? each->surfaces[number] : NULL;
}

/* Takes an output surface that is not mapped; NULL if all are mapped. */
static output_surface *take_output(decoder *each) {
    for (unsigned long number = 0; number < each->about.ulNumOutputSurfaces; number++) {
        if (!each->outputs[number].is_mapped) {
            each->outputs[number].is_mapped = true;
            return &each->outputs[number];
        }
    }
    return NULL;
}

/* A picture that is to be written to an output surface, in the stream that the mapping call named. */
typedef struct writing {
    picture *shown;
    surface_layout layout;
    unsigned char *to;
} writing;

static int write_surface(void *argument) {
    writing *given = argument;
    bool is_written = surface_write(given->shown, &given->layout, given->to);
    picture_drop(given->shown);
    free(given);
    return is_written ? SUCCESS : NOT_SUPPORTED;
}

static int map_picture(decoder *each, picture *shown, void *stream, unsigned long long *address, unsigned *pitch) {
    output_surface *output = take_output(each);
    writing *given = calloc(1, sizeof *given);
    if (output == NULL || given == NULL) {
        free(given);
        return MAP_FAILED_STATUS;
    }
    *given = (writing){.shown = picture_hold(shown), .layout = each->layout, .to = output->start};
    int said = sim_cuda_put(stream, write_surface, given);
    if (said != SUCCESS) {
        output->is_mapped = false;
        return said;
    }
    *address = (unsigned long long)(uintptr_t)output->start;
    *pitch = (unsigned)each->layout.pitch;
    return SUCCESS;
}

SIM_EXPORT int cuvidMapVideoFrame64(CUvideodecoder handle, int number, unsigned long long *address, unsigned *pitch,
                                    CUVIDPROCPARAMS *parameters) {
    void *stream = parameters == NULL ? NULL : parameters->output_stream; /* the fields are interleaved */
    decoder *each = handle;
    ENTER_ON("cuvidMapVideoFrame", each == NULL ? NULL : each->device);
    if (each == NULL || address == NULL || pitch == NULL) {
        return INVALID_VALUE;
    }
    pthread_mutex_lock(&each->lock);
    picture *shown = surface_at(each, number);
    int said = shown == NULL ? INVALID_VALUE : map_picture(each, shown, stream, address, pitch);
    pthread_mutex_unlock(&each->lock);
    return said;
}

SIM_EXPORT int cuvidUnmapVideoFrame64(CUvideodecoder handle, unsigned long long address) {
    decoder *each = handle;
    ENTER_ON("cuvidUnmapVideoFrame", each == NULL ? NULL : each->device);
    int said = INVALID_VALUE;
    for (int number = 0; each != NULL && number < OUTPUTS_MOST; number++) {
        output_surface *output = &each->outputs[number];
        if (output->is_mapped && (uintptr_t)output->start == address) {
            output->is_mapped = false;
            said = SUCCESS;
        }
    }
    return said;
}

/* Known only for H.264, HEVC and JPEG (NVDEC programming guide). */
SIM_EXPORT int cuvidGetDecodeStatus(CUvideodecoder handle, int number, CUVIDGETDECODESTATUS *status) {
    decoder *each = handle;
    ENTER_ON("cuvidGetDecodeStatus", each == NULL ? NULL : each->device);
    if (each == NULL || status == NULL) {
        return INVALID_VALUE;
    }
    cudaVideoCodec codec = each->about.CodecType;
    if (codec != cudaVideoCodec_H264 && codec != cudaVideoCodec_HEVC && codec != cudaVideoCodec_JPEG) {
        return NOT_SUPPORTED;
    }
    const picture *shown = surface_at(each, number);
    memset(status, 0, sizeof *status);
    status->decodeStatus = shown == NULL       ? cuvidDecodeStatus_Invalid
                           : shown->is_corrupt ? cuvidDecodeStatus_Error
                                               : cuvidDecodeStatus_Success;
    return SUCCESS;
}

SIM_EXPORT int cuvidReconfigureDecoder(CUvideodecoder handle, CUVIDRECONFIGUREDECODERINFO *about) {
    decoder *each = handle;
    ENTER_ON("cuvidReconfigureDecoder", each == NULL ? NULL : each->device);
    if (each == NULL || about == NULL || about->ulWidth > larger(each->about.ulMaxWidth, each->about.ulWidth) ||
        about->ulHeight > larger(each->about.ulMaxHeight, each->about.ulHeight) ||
        about->ulNumDecodeSurfaces > SURFACES_MOST) {
        return INVALID_VALUE;
    }
    sim_trace("cuvidReconfigureDecoder", "width=%u height=%u target=%ux%u surfaces=%u", about->ulWidth,
              about->ulHeight, about->ulTargetWidth, about->ulTargetHeight, about->ulNumDecodeSurfaces);
    CUVIDDECODECREATEINFO changed = each->about;
    changed.ulWidth = about->ulWidth;
    changed.ulHeight = about->ulHeight;
    changed.ulTargetWidth = about->ulTargetWidth;
    changed.ulTargetHeight = about->ulTargetHeight;
    memcpy(&changed.display_area, &about->display_area, sizeof about->display_area);
    changed.ulNumDecodeSurfaces = about->ulNumDecodeSurfaces;
    surface_layout layout = layout_of(&changed);
    if (surface_bytes(&layout) > each->output_bytes) {
        return NOT_SUPPORTED;
    }
    each->about = changed;
    each->layout = layout;
    return SUCCESS;
}

/*
 * Context locks
 */

SIM_EXPORT int cuvidCtxLockCreate(CUvideoctxlock *made, CUcontext context) {
    ENTER_ON("cuvidCtxLockCreate", sim_cuda_device(context));
    CUvideoctxlock each = calloc(1, sizeof *each);
    if (each == NULL) {
        return OUT_OF_MEMORY;
    }
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&each->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    each->context = context;
    *made = each;
    return SUCCESS;
}

SIM_EXPORT int cuvidCtxLockDestroy(CUvideoctxlock each) {
    ENTER_ON("cuvidCtxLockDestroy", sim_cuda_device(NULL));
    if (each == NULL) {
        return INVALID_VALUE;
    }
    pthread_mutex_destroy(&each->lock);
    free(each);
    return SUCCESS;
}

SIM_EXPORT int cuvidCtxLock(CUvideoctxlock each, unsigned flags) {
    (void)flags;
    ENTER_ON("cuvidCtxLock", sim_cuda_device(NULL));
    if (each == NULL) {
        return INVALID_VALUE;
    }
    pthread_mutex_lock(&each->lock);
    int said = cuCtxPushCurrent_v2(each->context);
    if (said != SUCCESS) {
        pthread_mutex_unlock(&each->lock);
    }
    return said;
}

SIM_EXPORT int cuvidCtxUnlock(CUvideoctxlock each, unsigned flags) {
    (void)flags;
    ENTER_ON("cuvidCtxUnlock", sim_cuda_device(NULL));
    if (each == NULL) {
        return INVALID_VALUE;
    }
    int said = cuCtxPopCurrent_v2(NULL);
    pthread_mutex_unlock(&each->lock);
    return said;
}

/*
 * Video sources: not used with a demuxer
 */

#define NO_SOURCES(name)                                                                                               \
    SIM_EXPORT int name(void) {                                                                                        \
        ENTER_ON(#name, sim_cuda_device(NULL));                                                                        \
        return NOT_SUPPORTED;                                                                                          \
    }

NO_SOURCES(cuvidCreateVideoSource)
NO_SOURCES(cuvidCreateVideoSourceW)
NO_SOURCES(cuvidDestroyVideoSource)
NO_SOURCES(cuvidSetVideoSourceState)
NO_SOURCES(cuvidGetVideoSourceState)
NO_SOURCES(cuvidGetSourceVideoFormat)
NO_SOURCES(cuvidGetSourceAudioFormat)
