/* Copies and fills of the simulated libcuda. Device addresses have to lie in an allocation, to their last byte. */
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <string.h>

#define MEMORY_UNIFIED 4

static void *at(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

static int copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t bytes) {
    REFUSE(bytes == 0, SUCCESS);
    REFUSE(to == 0 || from == 0, INVALID_VALUE);
    REFUSE(to_device && !sim_memory_holds(at(to), bytes), INVALID_VALUE);
    REFUSE(from_device && !sim_memory_holds(at(from), bytes), INVALID_VALUE);
    memmove(at(to), at(from), bytes);
    return SUCCESS;
}

static CUdeviceptr address_of(const void *host) {
    return (CUdeviceptr)(uintptr_t)host;
}

SIM_EXPORT int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER_ALL("cuMemcpyHtoD");
    return copy(to, true, address_of(from), false, bytes);
}

SIM_EXPORT int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER_ALL("cuMemcpyDtoH");
    return copy(address_of(to), false, from, true, bytes);
}

SIM_EXPORT int cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER_ALL("cuMemcpyDtoD");
    return copy(to, true, from, true, bytes);
}

SIM_EXPORT int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyHtoDAsync", stream);
    return copy(to, true, address_of(from), false, bytes);
}

SIM_EXPORT int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyDtoHAsync", stream);
    return copy(address_of(to), false, from, true, bytes);
}

SIM_EXPORT int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyDtoDAsync", stream);
    return copy(to, true, from, true, bytes);
}

SIM_EXPORT int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    ENTER_ALL("cuMemcpy");
    return copy(to, false, from, false, bytes);
}

SIM_EXPORT int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyAsync", stream);
    return copy(to, false, from, false, bytes);
}

SIM_EXPORT int cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                 size_t bytes, CUstream stream) {
    ENTER_WORK("cuMemcpyPeerAsync", stream);
    REFUSE(!cuda_is_live(to_context) || !cuda_is_live(from_context), INVALID_CONTEXT);
    return copy(to, true, from, true, bytes);
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

static bool holds_rows(const plane *side, size_t width, size_t height) {
    return !side->is_checked || sim_memory_holds(side->start, (height - 1) * side->pitch + width);
}

static int copy_2d(const CUDA_MEMCPY2D *what) {
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
    REFUSE(!holds_rows(&from, width, what->Height) || !holds_rows(&to, width, what->Height), INVALID_VALUE);
    for (size_t row = 0; row < what->Height; row++) {
        memmove(to.start + row * to.pitch, from.start + row * from.pitch, width);
    }
    return SUCCESS;
}

SIM_EXPORT int cuMemcpy2D_v2(const CUDA_MEMCPY2D *what) {
    ENTER_ALL("cuMemcpy2D");
    return what == NULL ? INVALID_VALUE : copy_2d(what);
}

SIM_EXPORT int cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *what) {
    return cuMemcpy2D_v2(what);
}

SIM_EXPORT int cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *what, CUstream stream) {
    ENTER_WORK("cuMemcpy2DAsync", stream);
    return what == NULL ? INVALID_VALUE : copy_2d(what);
}

/* Fills rows with a value of one, two or four bytes. */
static int fill(CUdeviceptr to, size_t pitch, unsigned value, size_t element, size_t width, size_t height) {
    REFUSE(width == 0 || height == 0, SUCCESS);
    REFUSE(to % element != 0 || !sim_memory_holds(at(to), (height - 1) * pitch + width * element), INVALID_VALUE);
    for (size_t row = 0; row < height; row++) {
        char *start = (char *)at(to) + row * pitch;
        for (size_t column = 0; column < width; column++) {
            memcpy(start + column * element, &value, element);
        }
    }
    return SUCCESS;
}

#define FILLS(bits, type)                                                                                              \
    SIM_EXPORT int cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                                    \
        ENTER_ALL("cuMemsetD" #bits);                                                                                      \
        return fill(to, 0, value, sizeof value, count, 1);                                                             \
    }                                                                                                                  \
    SIM_EXPORT int cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {                 \
        ENTER_WORK("cuMemsetD" #bits "Async", stream);                                                               \
        return fill(to, 0, value, sizeof value, count, 1);                                                             \
    }                                                                                                                  \
    SIM_EXPORT int cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {     \
        ENTER_ALL("cuMemsetD2D" #bits);                                                                                    \
        return fill(to, pitch, value, sizeof value, width, height);                                                    \
    }                                                                                                                  \
    SIM_EXPORT int cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,     \
                                            CUstream stream) {                                                         \
        ENTER_WORK("cuMemsetD2D" #bits "Async", stream);                                                             \
        return fill(to, pitch, value, sizeof value, width, height);                                                    \
    }

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
