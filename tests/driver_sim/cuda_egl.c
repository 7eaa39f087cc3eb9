/*
 * EGL interoperability of the simulated libcuda: the twelve entry points, and arrays, which may hold frames.
 *
 * As on an H100 (driver 580.159.04), errors are 999 for a producer before its consumer, for a second end and for the
 * 65th frame; 702 after a time-out; 400 for memory that is not from cuMemAlloc. Formats with two planes change their
 * names between producer and consumer.
 */
#define _GNU_SOURCE
#include "cuda_driver.h"
#include "deferred_work.h"
#include "eglobjects.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ARRAYS_MOST 1024
#define RETURN_WAIT_US 1000u
#define FRAME_ARRAY 0

typedef struct egl_frame {
    void *planes[EGL_PLANES_MOST];
    unsigned width, height, depth, pitch, plane_count, channels, type, colour, format;
} egl_frame;

typedef struct connection {
    sim_egl_stream *stream;
    CUcontext context;
    bool is_producer, is_alive;
    unsigned width, height;
} connection;

/* A frame that was acquired, or an image that was registered. */
typedef struct resource {
    connection *of; /* NULL: of an image */
    sim_egl_image *image;
    egl_frame frame;
    void *copies[EGL_PLANES_MOST];
    int slot;
    bool is_alive;
} resource;

typedef struct known_array {
    void *base;
    size_t pitch;
} known_array;

static struct {
    pthread_mutex_t lock;
    known_array arrays[ARRAYS_MOST];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * Arrays: rows of memory without padding. The handle is the memory's address.
 */

static bool keep_array(void *base, size_t pitch) {
    bool is_kept = false;
    pthread_mutex_lock(&known.lock);
    for (int number = 0; number < ARRAYS_MOST && !is_kept; number++) {
        known_array *one = &known.arrays[number];
        if (one->base == base || (pitch != 0 && one->base == NULL)) {
            *one = pitch == 0 ? (known_array){0} : (known_array){base, pitch};
            is_kept = true;
        }
    }
    pthread_mutex_unlock(&known.lock);
    return is_kept;
}

size_t cuda_array_pitch(const void *array) {
    size_t pitch = 0;
    pthread_mutex_lock(&known.lock);
    for (int number = 0; number < ARRAYS_MOST; number++) {
        pitch = array != NULL && known.arrays[number].base == array ? known.arrays[number].pitch : pitch;
    }
    pthread_mutex_unlock(&known.lock);
    return pitch;
}

SIM_EXPORT int cuArrayCreate_v2(void **array, const void *wanted) {
    typedef struct descriptor {
        size_t width, height;
        unsigned format, channels;
    } descriptor;
    const descriptor *what = wanted;
    ENTER("cuArrayCreate");
    REFUSE(array == NULL || what == NULL || what->width == 0, INVALID_VALUE);
    REFUSE(what->channels != 1 && what->channels != 2 && what->channels != 4, INVALID_VALUE);
    size_t item = what->format == 2 ? 2 : 1;
    size_t pitch = what->width * what->channels * item;
    void *made = sim_memory_alloc(cuda_current()->device, pitch * (what->height == 0 ? 1 : what->height),
                                  SIM_DEVICE_MEMORY, cuda_owner_of(cuda_current()));
    REFUSE(made == NULL || !keep_array(made, pitch), OUT_OF_MEMORY);
    *array = made;
    return SUCCESS;
}

SIM_EXPORT int cuArrayDestroy(void *array) {
    ENTER("cuArrayDestroy");
    REFUSE(cuda_array_pitch(array) == 0, INVALID_HANDLE);
    keep_array(array, 0);
    sim_memory_free(array);
    return SUCCESS;
}

/*
 * What frames are
 */

/* The bytes of a pixel's row in a plane, relative to the first plane, and the plane's share of the rows. */
static void shape_planes(sim_egl_frame *frame) {
    unsigned colour = frame->colour;
    bool halved_down = colour <= 1 || colour == 21 || colour == 23 || colour == 25 || colour == 35 || colour == 38 ||
                       colour == 44 || (colour >= 83 && colour <= 92);
    bool in_threes = frame->plane_count == 3;
    bool halved_across = in_threes && (halved_down || colour == 2 || colour == 34);
    bool doubled = frame->plane_count == 2 && (colour == 11 || colour == 19 || colour == 22 || colour == 24);
    unsigned item = frame->format == 2 ? 2 : 1;
    unsigned first = frame->width * frame->channels * item;
    for (unsigned plane = 0; plane < frame->plane_count; plane++) {
        frame->row_bytes[plane] = plane == 0 ? first : first >> halved_across << doubled;
        frame->rows[plane] = plane == 0 ? frame->height : frame->height >> halved_down;
        frame->pitches[plane] = plane == 0 ? frame->pitch : frame->pitch >> halved_across << doubled;
    }
}

static unsigned renamed(unsigned colour) {
    static const unsigned pairs[][2] = {{1, 21}, {3, 20}, {11, 19}, {38, 44}, {83, 84}, {87, 88}};
    for (size_t number = 0; number < sizeof pairs / sizeof *pairs; number++) {
        if (pairs[number][0] == colour || pairs[number][1] == colour) {
            return pairs[number][0] + pairs[number][1] - colour;
        }
    }
    return colour;
}

static bool is_device_memory(const sim_egl_frame *frame) {
    sim_allocation found;
    for (unsigned plane = 0; plane < frame->plane_count; plane++) {
        void *at = (void *)(uintptr_t)frame->planes[plane];
        size_t bytes = (size_t)frame->pitches[plane] * (frame->rows[plane] - 1) + frame->row_bytes[plane];
        if (!sim_memory_holds(at, bytes) || !sim_memory_find(at, &found) || found.kind != SIM_DEVICE_MEMORY) {
            return false;
        }
    }
    return true;
}

static bool describe(const egl_frame *from, sim_egl_frame *to) {
    *to = (sim_egl_frame){.width = from->width, .height = from->height, .pitch = from->pitch,
                          .plane_count = from->plane_count, .channels = from->channels, .type = from->type,
                          .colour = from->colour, .format = from->format};
    if (from->plane_count == 0 || from->plane_count > EGL_PLANES_MOST || from->width == 0 || from->height == 0) {
        return false;
    }
    shape_planes(to);
    for (unsigned plane = 0; plane < from->plane_count; plane++) {
        to->planes[plane] = (uint64_t)(uintptr_t)from->planes[plane];
        if (from->type == FRAME_ARRAY) {
            to->pitches[plane] = (unsigned)cuda_array_pitch(from->planes[plane]);
        }
    }
    return is_device_memory(to);
}

static egl_frame written(const sim_egl_frame *from, void *const planes[EGL_PLANES_MOST]) {
    egl_frame frame = {.width = from->width, .height = from->height, .pitch = from->pitch,
                       .plane_count = from->plane_count, .channels = from->channels, .type = from->type,
                       .colour = from->colour, .format = from->format};
    for (unsigned plane = 0; plane < EGL_PLANES_MOST; plane++) {
        /* The memory after the planes is not initialised on a GPU either. */
        frame.planes[plane] = plane < from->plane_count ? planes[plane] : (void *)(uintptr_t)0xdead0000u;
    }
    return frame;
}

/*
 * Connections
 */

static bool is_live(void *context) {
    return cuda_is_live(context);
}

static int connect_end(connection **made, sim_egl_stream *stream, bool is_producer) {
    REFUSE(made == NULL || !sim_egl_stream_is(stream), INVALID_HANDLE);
    sim_egl_set_context_check(is_live);
    int device = cuda_device_of(cuda_current());
    REFUSE(!sim_egl_connect(stream, is_producer, cuda_current(), device), UNKNOWN);
    connection *one = calloc(1, sizeof *one);
    REFUSE(one == NULL, OUT_OF_MEMORY);
    *one = (connection){.stream = stream, .context = cuda_current(), .is_producer = is_producer, .is_alive = true};
    *made = one;
    return SUCCESS;
}

SIM_EXPORT int cuEGLStreamConsumerConnect(connection **made, sim_egl_stream *stream) {
    ENTER("cuEGLStreamConsumerConnect");
    return connect_end(made, stream, false);
}

SIM_EXPORT int cuEGLStreamConsumerConnectWithFlags(connection **made, sim_egl_stream *stream, unsigned flags) {
    ENTER("cuEGLStreamConsumerConnectWithFlags");
    REFUSE(flags > 1, INVALID_VALUE);
    return connect_end(made, stream, false);
}

SIM_EXPORT int cuEGLStreamProducerConnect(connection **made, sim_egl_stream *stream, int width, int height) {
    ENTER("cuEGLStreamProducerConnect");
    REFUSE(width < 0 || height < 0, INVALID_VALUE);
    int said = connect_end(made, stream, true);
    if (said == SUCCESS) {
        (*made)->width = (unsigned)width;
        (*made)->height = (unsigned)height;
    }
    return said;
}

#define ENTER_END(name, conn, producer)                                                                                \
    do {                                                                                                               \
        ENTER(name);                                                                                                   \
        REFUSE((conn) == NULL || *(conn) == NULL || !(*(conn))->is_alive, INVALID_HANDLE);                             \
        REFUSE((*(conn))->is_producer != (producer), INVALID_HANDLE);                                                  \
        REFUSE(!cuda_is_live((*(conn))->context), INVALID_CONTEXT);                                                    \
        REFUSE(!sim_egl_stream_is((*(conn))->stream), UNKNOWN);                                                        \
    } while (0)

static int disconnect_end(connection *one) {
    sim_egl_disconnect(one->stream, one->is_producer);
    one->is_alive = false;
    return SUCCESS;
}

SIM_EXPORT int cuEGLStreamConsumerDisconnect(connection **conn) {
    ENTER("cuEGLStreamConsumerDisconnect");
    REFUSE(conn == NULL || *conn == NULL || !(*conn)->is_alive || (*conn)->is_producer, INVALID_HANDLE);
    return disconnect_end(*conn);
}

SIM_EXPORT int cuEGLStreamProducerDisconnect(connection **conn) {
    ENTER("cuEGLStreamProducerDisconnect");
    REFUSE(conn == NULL || *conn == NULL || !(*conn)->is_alive || !(*conn)->is_producer, INVALID_HANDLE);
    return disconnect_end(*conn);
}

static int code_of(sim_egl_result result) {
    static const int codes[] = {SUCCESS, LAUNCH_TIMEOUT, UNKNOWN, NOT_SUPPORTED};
    return codes[result];
}

/* The caller's stream works first: a presented frame is complete when it is acquired, a released frame was read. */
#define AWAIT(stream)                                                                                                  \
    do {                                                                                                               \
        CUstream behind = (stream) == NULL ? NULL : *(stream);                                                         \
        int awaited = cuda_await(behind);                                                                              \
        awaited = awaited == SUCCESS ? sim_cuda_finish(behind) : awaited;                                              \
        REFUSE(awaited != SUCCESS, awaited);                                                                           \
    } while (0)

SIM_EXPORT int cuEGLStreamProducerPresentFrame(connection **conn, egl_frame frame, CUstream *stream) {
    sim_egl_frame described;
    ENTER_END("cuEGLStreamProducerPresentFrame", conn, true);
    AWAIT(stream);
    REFUSE(!describe(&frame, &described), INVALID_HANDLE);
    described.device = cuda_device_of((*conn)->context);
    return code_of(sim_egl_present((*conn)->stream, &described));
}

SIM_EXPORT int cuEGLStreamProducerReturnFrame(connection **conn, egl_frame *frame, CUstream *stream) {
    sim_egl_frame back;
    ENTER_END("cuEGLStreamProducerReturnFrame", conn, true);
    AWAIT(stream);
    REFUSE(frame == NULL, INVALID_VALUE);
    sim_egl_result result = sim_egl_return((*conn)->stream, RETURN_WAIT_US, &back);
    if (result == SIM_EGL_DONE) {
        void *planes[EGL_PLANES_MOST];
        for (unsigned plane = 0; plane < EGL_PLANES_MOST; plane++) {
            planes[plane] = (void *)(uintptr_t)back.planes[plane];
        }
        *frame = written(&back, planes);
    }
    return code_of(result);
}

/* The consumer maps the memory at another address than the producer. The release removes the mapping. */
static bool map_frame(resource *one, const sim_egl_frame *frame, const char *const pixels[EGL_PLANES_MOST]) {
    const sim_device *device = cuda_current()->device;
    sim_egl_frame seen = *frame;
    seen.colour = renamed(frame->colour);
    for (unsigned plane = 0; plane < frame->plane_count; plane++) {
        size_t row_bytes = frame->row_bytes[plane];
        size_t pitch = frame->type == FRAME_ARRAY ? row_bytes : frame->pitches[plane];
        char *made = sim_memory_alloc(device, pitch * frame->rows[plane], SIM_DEVICE_MEMORY,
                                      cuda_owner_of(cuda_current()));
        if (made == NULL || (frame->type == FRAME_ARRAY && !keep_array(made, row_bytes))) {
            return false;
        }
        for (unsigned row = 0; row < frame->rows[plane]; row++) {
            memcpy(made + row * pitch, pixels[plane] + row * row_bytes, row_bytes);
        }
        one->copies[plane] = made;
    }
    one->frame = written(&seen, one->copies);
    return true;
}

static void unmap_frame(resource *one) {
    for (unsigned plane = 0; plane < EGL_PLANES_MOST; plane++) {
        if (one->copies[plane] != NULL) {
            keep_array(one->copies[plane], 0);
            sim_memory_free(one->copies[plane]);
            one->copies[plane] = NULL;
        }
    }
}

SIM_EXPORT int cuEGLStreamConsumerAcquireFrame(connection **conn, resource **made, CUstream *stream, unsigned timeout) {
    sim_egl_frame frame;
    int slot = 0;
    const char *pixels[EGL_PLANES_MOST] = {NULL};
    ENTER_END("cuEGLStreamConsumerAcquireFrame", conn, false);
    AWAIT(stream);
    sim_egl_result result = sim_egl_acquire((*conn)->stream, timeout, &frame, &slot, pixels);
    if (result != SIM_EGL_DONE) {
        return code_of(result);
    }
    resource *one = calloc(1, sizeof *one);
    REFUSE(one == NULL, OUT_OF_MEMORY);
    *one = (resource){.of = *conn, .slot = slot, .is_alive = true};
    REFUSE(!map_frame(one, &frame, pixels), OUT_OF_MEMORY);
    *made = one;
    return SUCCESS;
}

SIM_EXPORT int cuEGLStreamConsumerReleaseFrame(connection **conn, resource *one, CUstream *stream) {
    ENTER_END("cuEGLStreamConsumerReleaseFrame", conn, false);
    AWAIT(stream);
    REFUSE(one == NULL || !one->is_alive || one->of != *conn, INVALID_HANDLE);
    one->is_alive = false;
    unmap_frame(one);
    return code_of(sim_egl_release((*conn)->stream, one->slot));
}

/*
 * Images, and what a resource is
 */

SIM_EXPORT int cuGraphicsEGLRegisterImage(resource **made, sim_egl_image *image, unsigned flags) {
    int said = SUCCESS;
    sim_verdict verdict = sim_enter("cuGraphicsEGLRegisterImage", cuda_device_of(cuda_current()), &said);
    REFUSE(verdict == SIM_STATUS, said);
    REFUSE(!cuda_is_live(cuda_current()), INVALID_CONTEXT);
    REFUSE(made == NULL || flags != 0, INVALID_VALUE);
    REFUSE(!sim_egl_image_is(image), INVALID_HANDLE);
    resource *one = calloc(1, sizeof *one);
    REFUSE(one == NULL, OUT_OF_MEMORY);
    *one = (resource){.image = image, .is_alive = true};
    void *planes[EGL_PLANES_MOST];
    for (unsigned plane = 0; plane < image->frame.plane_count; plane++) {
        planes[plane] = (void *)(uintptr_t)image->frame.planes[plane];
        if (verdict == SIM_CORRUPT) { /* memory that only CUDA sees */
            size_t bytes = (size_t)image->frame.pitches[plane] * image->frame.rows[plane];
            planes[plane] = one->copies[plane] =
                sim_memory_alloc(cuda_current()->device, bytes, SIM_DEVICE_MEMORY, cuda_owner_of(cuda_current()));
        }
        if (image->frame.type == FRAME_ARRAY) {
            keep_array(planes[plane], image->frame.pitches[plane]);
        }
    }
    one->frame = written(&image->frame, planes);
    *made = one;
    return SUCCESS;
}

SIM_EXPORT int cuGraphicsUnregisterResource(resource *one) {
    ENTER("cuGraphicsUnregisterResource");
    REFUSE(one == NULL || !one->is_alive || one->image == NULL, INVALID_HANDLE);
    one->is_alive = false;
    unmap_frame(one);
    return SUCCESS;
}

SIM_EXPORT int cuGraphicsResourceGetMappedEglFrame(egl_frame *frame, resource *one, unsigned index, unsigned level) {
    ENTER("cuGraphicsResourceGetMappedEglFrame");
    REFUSE(frame == NULL || index != 0 || level != 0, INVALID_VALUE);
    REFUSE(one == NULL || !one->is_alive, NOT_MAPPED);
    *frame = one->frame;
    return SUCCESS;
}

typedef struct CUevent_st *event_handle;
int cuEventCreate(event_handle *event, unsigned flags);
int cuEventRecord(event_handle event, CUstream stream);

SIM_EXPORT int cuEventCreateFromEGLSync(event_handle *event, sim_egl_sync *sync, unsigned flags) {
    ENTER("cuEventCreateFromEGLSync");
    REFUSE(flags > 1 || !sim_egl_sync_is(sync), INVALID_VALUE);
    int said = cuEventCreate(event, flags);
    return said == SUCCESS ? cuEventRecord(*event, NULL) : said;
}
