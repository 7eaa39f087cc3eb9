/* Copies and fills of the simulated libcuda. The whole range of device addresses must be within one allocation. */
#define _GNU_SOURCE
#include "cuda_deferred.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_UNIFIED 4

static void *at(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

/* A copy or fill that waits in a stream. Host memory that is not page-locked was already read at the call. */
typedef struct transfer {
    char *to;
    const char *from; /* NULL: fill with `value` */
    size_t to_pitch;
    size_t from_pitch;
    size_t width;
    size_t height;
    unsigned value;
    size_t element;
    bool checks_to;
    bool checks_from;
    char *staged;
} transfer;

static bool holds(const transfer *each, const void *start, size_t pitch) {
    return sim_memory_holds(start, (each->height - 1) * pitch + each->width);
}

static int move(void *argument) {
    transfer *each = argument;
    bool is_held = (!each->checks_to || holds(each, each->to, each->to_pitch)) &&
                   (!each->checks_from || holds(each, each->from, each->from_pitch));
    for (size_t row = 0; is_held && row < each->height; row++) {
        char *line = each->to + row * each->to_pitch;
        if (each->from != NULL) {
            memmove(line, each->from + row * each->from_pitch, each->width);
        }
        for (size_t column = 0; each->from == NULL && column < each->width; column += each->element) {
            memcpy(line + column, &each->value, each->element);
        }
    }
    free(each->staged);
    free(each);
    return is_held ? SUCCESS : ILLEGAL_ADDRESS; /* the memory was freed meanwhile */
}

static bool is_pageable(const void *address) {
    return !sim_memory_find(address, NULL);
}

/* Copies host memory that its owner may change as soon as the call returns. */
static bool stage(transfer *each) {
    each->staged = malloc(each->width * each->height);
    for (size_t row = 0; each->staged != NULL && row < each->height; row++) {
        memcpy(each->staged + row * each->width, each->from + row * each->from_pitch, each->width);
    }
    each->from = each->staged;
    each->from_pitch = each->width;
    return each->staged != NULL;
}

/* Puts a transfer into a stream. A transfer into pageable memory is done when the call returns, as with the driver. */
static int put(transfer given, CUstream stream) {
    REFUSE(given.width == 0 || given.height == 0, SUCCESS);
    REFUSE(given.checks_to && !holds(&given, given.to, given.to_pitch), INVALID_VALUE);
    REFUSE(given.checks_from && !holds(&given, given.from, given.from_pitch), INVALID_VALUE);
    bool waits = is_pageable(given.to);
    REFUSE(given.from != NULL && is_pageable(given.from) && !stage(&given), OUT_OF_MEMORY);
    transfer *kept = malloc(sizeof *kept);
    REFUSE(kept == NULL, OUT_OF_MEMORY);
    *kept = given;
    int said = sim_cuda_put(stream, move, kept);
    return said == SUCCESS && waits ? sim_cuda_finish(stream) : said;
}

/* Transfers without a stream are done in the legacy default stream, and are waited for. */
static int put_here(transfer given) {
    int said = put(given, NULL);
    return said == SUCCESS ? sim_cuda_finish(NULL) : said;
}

static transfer copied(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t bytes) {
    return (transfer){.to = at(to),
                      .from = at(from),
                      .to_pitch = bytes,
                      .from_pitch = bytes,
                      .width = bytes,
                      .height = 1,
                      .checks_to = to_device,
                      .checks_from = from_device};
}

static CUdeviceptr address_of(const void *host) {
    return (CUdeviceptr)(uintptr_t)host;
}

static bool is_nothing(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return bytes > 0 && (to == 0 || from == 0);
}

SIM_EXPORT int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER_ALL("cuMemcpyHtoD");
    REFUSE(is_nothing(to, address_of(from), bytes), INVALID_VALUE);
    return put_here(copied(to, true, address_of(from), false, bytes));
}

SIM_EXPORT int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER_ALL("cuMemcpyDtoH");
    REFUSE(is_nothing(address_of(to), from, bytes), INVALID_VALUE);
    return put_here(copied(address_of(to), false, from, true, bytes));
}

SIM_EXPORT int cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER_ALL("cuMemcpyDtoD");
    REFUSE(is_nothing(to, from, bytes), INVALID_VALUE);
    return put(copied(to, true, from, true, bytes), NULL); /* the driver does not wait for this transfer */
}

SIM_EXPORT int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyHtoDAsync", stream);
    REFUSE(is_nothing(to, address_of(from), bytes), INVALID_VALUE);
    return put(copied(to, true, address_of(from), false, bytes), stream);
}

SIM_EXPORT int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyDtoHAsync", stream);
    REFUSE(is_nothing(address_of(to), from, bytes), INVALID_VALUE);
    return put(copied(address_of(to), false, from, true, bytes), stream);
}

SIM_EXPORT int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyDtoDAsync", stream);
    REFUSE(is_nothing(to, from, bytes), INVALID_VALUE);
    return put(copied(to, true, from, true, bytes), stream);
}

SIM_EXPORT int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER_ALL("cuMemcpy");
    REFUSE(is_nothing(to, from, bytes), INVALID_VALUE);
    return put_here(copied(to, false, from, false, bytes));
}

SIM_EXPORT int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyAsync", stream);
    REFUSE(is_nothing(to, from, bytes), INVALID_VALUE);
    return put(copied(to, false, from, false, bytes), stream);
}

SIM_EXPORT int cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                 size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyPeerAsync", stream);
    REFUSE(!cuda_is_live(to_context) || !cuda_is_live(from_context), INVALID_CONTEXT);
    REFUSE(is_nothing(to, from, bytes), INVALID_VALUE);
    return put(copied(to, true, from, true, bytes), stream);
}

/* One side of a two-dimensional copy. */
typedef struct plane {
    char *start;
    size_t pitch;
    bool is_checked;
} plane;

static bool find_plane(plane *found, unsigned type, const void *host, CUdeviceptr device, const void *array,
                       size_t pitch, size_t left, size_t top, size_t width) {
    if (type == CU_MEMORYTYPE_ARRAY) {
        device = address_of(array);
        pitch = cuda_array_pitch(array);
        type = pitch == 0 ? 0 : CU_MEMORYTYPE_DEVICE;
    }
    const void *base = type == CU_MEMORYTYPE_HOST ? host : at(device);
    bool is_linear = type == CU_MEMORYTYPE_HOST || type == CU_MEMORYTYPE_DEVICE || type == MEMORY_UNIFIED;
    size_t step = pitch == 0 ? width + left : pitch;
    *found = (plane){.start = (char *)(uintptr_t)base + top * step + left,
                     .pitch = step,
                     .is_checked = type == CU_MEMORYTYPE_DEVICE};
    return is_linear && base != NULL && left + width <= step;
}

static int read_2d(const CUDA_MEMCPY2D *what, transfer *found) {
    plane from;
    plane to;
    size_t width = what->WidthInBytes;
    REFUSE(width == 0 || what->Height == 0, SUCCESS);
    REFUSE(!find_plane(&from, what->srcMemoryType, what->srcHost, what->srcDevice, what->srcArray, what->srcPitch,
                       what->srcXInBytes, what->srcY, width),
           INVALID_VALUE);
    REFUSE(!find_plane(&to, what->dstMemoryType, what->dstHost, what->dstDevice, what->dstArray, what->dstPitch,
                       what->dstXInBytes, what->dstY, width),
           INVALID_VALUE);
    *found = (transfer){.to = to.start,
                        .from = from.start,
                        .to_pitch = to.pitch,
                        .from_pitch = from.pitch,
                        .width = width,
                        .height = what->Height,
                        .checks_to = to.is_checked,
                        .checks_from = from.is_checked};
    return SUCCESS;
}

SIM_EXPORT int cuMemcpy2D_v2(const CUDA_MEMCPY2D *what) {
    transfer found = {0};
    ENTER_ALL("cuMemcpy2D");
    int said = what == NULL ? INVALID_VALUE : read_2d(what, &found);
    return said == SUCCESS ? put_here(found) : said;
}

SIM_EXPORT int cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *what) {
    return cuMemcpy2D_v2(what);
}

SIM_EXPORT int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *what, CUstream stream) {
    transfer found = {0};
    ENTER_WORK("cuMemcpy2DAsync", stream);
    int said = what == NULL ? INVALID_VALUE : read_2d(what, &found);
    return said == SUCCESS ? put(found, stream) : said;
}

/* Fills rows with a value of one, two or four bytes. */
static int fill(CUdeviceptr to, size_t pitch, unsigned value, size_t element, size_t width, size_t height,
                CUstream stream) {
    REFUSE(width == 0 || height == 0, SUCCESS);
    REFUSE(to % element != 0, INVALID_VALUE);
    return put((transfer){.to = at(to),
                          .to_pitch = pitch,
                          .width = width * element,
                          .height = height,
                          .value = value,
                          .element = element,
                          .checks_to = true},
               stream);
}

/* Fills without a stream go into the legacy default stream and are not waited for, as with the driver. */
#define FILLS(bits, type)                                                                                              \
    SIM_EXPORT int cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                                    \
        ENTER_ALL("cuMemsetD" #bits);                                                                                  \
        return fill(to, 0, value, sizeof value, count, 1, NULL);                                                       \
    }                                                                                                                  \
    SIM_EXPORT int cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {                 \
        ENTER_WORK("cuMemsetD" #bits "Async", stream);                                                                 \
        return fill(to, 0, value, sizeof value, count, 1, stream);                                                     \
    }                                                                                                                  \
    SIM_EXPORT int cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {     \
        ENTER_ALL("cuMemsetD2D" #bits);                                                                                \
        return fill(to, pitch, value, sizeof value, width, height, NULL);                                              \
    }                                                                                                                  \
    SIM_EXPORT int cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,     \
                                            CUstream stream) {                                                         \
        ENTER_WORK("cuMemsetD2D" #bits "Async", stream);                                                               \
        return fill(to, pitch, value, sizeof value, width, height, stream);                                            \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
