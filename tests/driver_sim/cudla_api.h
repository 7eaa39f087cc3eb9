/*
 * The binary interface of cuDLA 1.x, restated: the names, numbers and members of the cuDLA API reference, in the layout
 * that cuda.bindings.cudla 13.4 uses. NVIDIA's own header comes only with the CUDA toolkit.
 *
 * This is part of a DRIVER SIMULATOR for tests. Handles are opaque here, as they are to a caller.
 */
#ifndef CODECFLEET_DRIVER_SIM_CUDLA_API_H
#define CODECFLEET_DRIVER_SIM_CUDLA_API_H

#include <stddef.h>
#include <stdint.h>

typedef enum cudlaStatus {
    cudlaSuccess = 0,
    cudlaErrorInvalidParam = 1,
    cudlaErrorOutOfResources = 2,
    cudlaErrorCreationFailed = 3,
    cudlaErrorInvalidAddress = 4,
    cudlaErrorOs = 5,
    cudlaErrorCuda = 6,
    cudlaErrorUmd = 7,
    cudlaErrorInvalidDevice = 8,
    cudlaErrorInvalidAttribute = 9,
    cudlaErrorIncompatibleDlaSWVersion = 10,
    cudlaErrorMemoryRegistered = 11,
    cudlaErrorInvalidModule = 12,
    cudlaErrorUnsupportedOperation = 13,
    cudlaErrorNvSci = 14,
    cudlaErrorDlaErrEngineTimeout = 0x40000006,
    cudlaErrorDlaErrDataMismatch = 0x40000007,
    cudlaErrorUnknown = 0x7fffffff
} cudlaStatus;

enum { CUDLA_CUDA_DLA = 0, CUDLA_STANDALONE = 1 };
enum { CUDLA_NVSCISYNC_ATTR_WAIT = 1, CUDLA_NVSCISYNC_ATTR_SIGNAL = 2 };
enum { CUDLA_NVSCISYNC_FENCE = 1 };
enum { CUDLA_MODULE_ENABLE_FAULT_DIAGNOSTICS = 1, CUDLA_SCRATCH_MEMORY_SHARED_STATIC = 2 };
enum { CUDLA_SUBMIT_NOOP = 1, CUDLA_SUBMIT_SKIP_LOCK_ACQUIRE = 2, CUDLA_SUBMIT_DIAGNOSTICS_TASK = 4 };
enum { CUDLA_READ_ONLY_PERM = 1, CUDLA_TASK_STATISTICS = 2 };
enum { CUDLA_UNIFIED_ADDRESSING = 0, CUDLA_DEVICE_VERSION = 1 };
enum {
    CUDLA_NUM_INPUT_TENSORS = 0,
    CUDLA_NUM_OUTPUT_TENSORS = 1,
    CUDLA_INPUT_TENSOR_DESCRIPTORS = 2,
    CUDLA_OUTPUT_TENSOR_DESCRIPTORS = 3,
    CUDLA_NUM_OUTPUT_TASK_STATISTICS = 4,
    CUDLA_OUTPUT_TASK_STATISTICS_DESCRIPTORS = 5
};

typedef struct dla_device *cudlaDevHandle;
typedef struct dla_module *cudlaModule;

typedef struct cudlaModuleTensorDescriptor {
    char name[81];
    uint64_t size;
    uint64_t n, c, h, w;
    uint8_t dataFormat;
    uint8_t dataType;
    uint8_t dataCategory;
    uint8_t pixelFormat;
    uint8_t pixelMapping;
    uint32_t stride[8];
} cudlaModuleTensorDescriptor;

typedef union cudlaModuleAttribute {
    uint32_t numInputTensors;
    uint32_t numOutputTensors;
    cudlaModuleTensorDescriptor *inputTensorDesc;
    cudlaModuleTensorDescriptor *outputTensorDesc;
} cudlaModuleAttribute;

typedef union cudlaDevAttribute {
    uint8_t unifiedAddressingSupported;
    uint32_t deviceVersion;
} cudlaDevAttribute;

typedef struct cudlaExternalMemoryHandleDesc {
    const void *extBufObject;
    unsigned long long size;
} cudlaExternalMemoryHandleDesc;

typedef struct cudlaExternalSemaphoreHandleDesc {
    const void *extSyncObject;
} cudlaExternalSemaphoreHandleDesc;

typedef struct CudlaFence {
    void *fence;
    int type;
} CudlaFence;

typedef struct cudlaWaitEvents {
    const CudlaFence *preFences;
    uint32_t numEvents;
} cudlaWaitEvents;

typedef struct cudlaSignalEvents {
    uint64_t *const *devPtrs;
    CudlaFence *eofFences;
    uint32_t numEvents;
} cudlaSignalEvents;

typedef struct cudlaTask {
    cudlaModule moduleHandle;
    uint64_t *const *outputTensor;
    uint32_t numOutputTensors;
    uint32_t numInputTensors;
    const uint64_t *const *inputTensor;
    const cudlaWaitEvents *waitEvents; /* for standalone mode, like the next one */
    cudlaSignalEvents *signalEvents;
} cudlaTask;

_Static_assert(sizeof(cudlaModuleTensorDescriptor) == 168, "as in cuda.bindings.cudla");
_Static_assert(sizeof(CudlaFence) == 16, "as in cuda.bindings.cudla");
_Static_assert(sizeof(cudlaWaitEvents) == 16, "as in cuda.bindings.cudla");
_Static_assert(sizeof(cudlaSignalEvents) == 24, "as in cuda.bindings.cudla");
_Static_assert(sizeof(cudlaTask) == 48, "as in cuda.bindings.cudla");

#endif
