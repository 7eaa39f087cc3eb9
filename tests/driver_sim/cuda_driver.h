/*
 * Shared by the sources of the simulated libcuda: error numbers, contexts, and the beginning of an entry point.
 */
#ifndef CODECFLEET_DRIVER_SIM_CUDA_DRIVER_H
#define CODECFLEET_DRIVER_SIM_CUDA_DRIVER_H

#include <ffnvcodec/dynlink_cuda.h>
#include <stdatomic.h>

#include "external_work.h"
#include "scenario.h"

/* CUDA's error numbers, their names without CUDA_ERROR_, and the driver's descriptions. */
#define ERRORS(X)                                                                                                      \
    X(1, INVALID_VALUE, "invalid argument")                                                                            \
    X(2, OUT_OF_MEMORY, "out of memory")                                                                               \
    X(3, NOT_INITIALIZED, "initialization error")                                                                      \
    X(4, DEINITIALIZED, "driver shutting down")                                                                        \
    X(34, STUB_LIBRARY, "CUDA driver is a stub library")                                                               \
    X(36, CALL_REQUIRES_NEWER_DRIVER, "API call is not supported in the installed CUDA driver")                        \
    X(46, DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")                                     \
    X(100, NO_DEVICE, "no CUDA-capable device is detected")                                                            \
    X(101, INVALID_DEVICE, "invalid device ordinal")                                                                   \
    X(102, DEVICE_NOT_LICENSED, "device doesn't have valid Grid license")                                              \
    X(200, INVALID_IMAGE, "device kernel image is invalid")                                                            \
    X(201, INVALID_CONTEXT, "invalid device context")                                                                  \
    X(205, MAP_FAILED, "mapping of buffer object failed")                                                              \
    X(206, UNMAP_FAILED, "unmapping of buffer object failed")                                                          \
    X(208, ALREADY_MAPPED, "resource already mapped")                                                                  \
    X(209, NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")                              \
    X(211, NOT_MAPPED, "resource not mapped")                                                                          \
    X(214, ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")                                                   \
    X(215, UNSUPPORTED_LIMIT, "limit is not supported on this architecture")                                           \
    X(220, NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution")                           \
    X(222, UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain.")                    \
    X(300, INVALID_SOURCE, "device kernel image is invalid")                                                           \
    X(301, FILE_NOT_FOUND, "file not found")                                                                           \
    X(304, OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")                                   \
    X(400, INVALID_HANDLE, "invalid resource handle")                                                                  \
    X(401, ILLEGAL_STATE, "the operation cannot be performed in the present state")                                    \
    X(500, NOT_FOUND, "named symbol not found")                                                                        \
    X(600, NOT_READY, "device not ready")                                                                              \
    X(700, ILLEGAL_ADDRESS, "an illegal memory access was encountered")                                                \
    X(702, LAUNCH_TIMEOUT, "the launch timed out and was terminated")                                                  \
    X(708, PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process")                                \
    X(709, CONTEXT_IS_DESTROYED, "context is destroyed")                                                               \
    X(712, HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped")              \
    X(713, HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region")                    \
    X(714, HARDWARE_STACK_ERROR, "hardware stack error")                                                               \
    X(719, LAUNCH_FAILED, "unspecified launch failure")                                                                \
    X(800, NOT_PERMITTED, "operation not permitted")                                                                   \
    X(801, NOT_SUPPORTED, "operation not supported")                                                                   \
    X(802, SYSTEM_NOT_READY, "system not yet initialized")                                                             \
    X(803, SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")                  \
    X(804, COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW")                  \
    X(805, MPS_CONNECTION_FAILED, "MPS client failed to connect to the MPS control daemon or the MPS server")          \
    X(908, STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread")    \
    X(911, EXTERNAL_DEVICE, "external device error")                                                                   \
    X(999, UNKNOWN, "unknown error")

#define NUMBER(number, name, text) name = number,
enum { SUCCESS = 0, ERRORS(NUMBER) };
#undef NUMBER

struct CUctx_st {
    const sim_device *device;
    int ordinal;
    unsigned flags;
    unsigned holders; /* of a primary context */
    bool is_primary;
    bool is_alive;
    uint64_t identity;
};

extern atomic_bool cuda_is_initialised;

CUcontext cuda_current(void);
bool cuda_is_live(CUcontext context);

/* The scenario's number of a context's device; SIM_NO_DEVICE if there is no context. */
int cuda_device_of(CUcontext context);

/* The owner under which a context's memory is listed. */
uint64_t cuda_owner_of(CUcontext context);

/* Waits for libcudla's work in a stream, or in every stream (SIM_EVERY_STREAM), and returns the work's error. */
int cuda_await(void *stream);

/* Tells whether libcudla's work has ended: CUDA_SUCCESS, CUDA_ERROR_NOT_READY, or the work's error. */
int cuda_query(CUstream stream);

bool cuda_is_stream(CUstream stream);
CUcontext cuda_context_of(CUstream stream);

/* The distance between the rows of an array; 0 if it is not an array. */
size_t cuda_array_pitch(const void *array);

/* Returns from the function if a fault says so. */
#define ENTER_ON(name, device)                                                                                         \
    do {                                                                                                               \
        int said = SUCCESS;                                                                                            \
        if (sim_enter(name, device, &said) == SIM_STATUS) {                                                            \
            return said;                                                                                               \
        }                                                                                                              \
    } while (0)

/* The same for functions that need cuInit, and for functions that also need a current context. */
#define ENTER_READY(name, device)                                                                                      \
    do {                                                                                                               \
        ENTER_ON(name, device);                                                                                        \
        if (!cuda_is_initialised) {                                                                                    \
            return NOT_INITIALIZED;                                                                                    \
        }                                                                                                              \
    } while (0)

#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        ENTER_READY(name, cuda_device_of(cuda_current()));                                                             \
        if (!cuda_is_live(cuda_current())) {                                                                           \
            return INVALID_CONTEXT;                                                                                    \
        }                                                                                                              \
    } while (0)

#define ENTER_DEVICE(name, ordinal)                                                                                    \
    do {                                                                                                               \
        const sim_device *named = cuda_is_initialised ? sim_device_at(ordinal) : NULL;                                 \
        ENTER_READY(name, named == NULL ? SIM_NO_DEVICE : named->index);                                               \
        if (named == NULL) {                                                                                           \
            return INVALID_DEVICE;                                                                                     \
        }                                                                                                              \
    } while (0)

#define REFUSE(condition, error)                                                                                       \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            return error;                                                                                              \
        }                                                                                                              \
    } while (0)

#define ENTER_STREAM(name, stream)                                                                                     \
    do {                                                                                                               \
        bool known = cuda_is_initialised && cuda_is_stream(stream);                                                    \
        ENTER_READY(name, known ? cuda_device_of(cuda_context_of(stream)) : SIM_NO_DEVICE);                            \
        REFUSE(cuda_current() == NULL, INVALID_CONTEXT);                                                               \
        REFUSE(!known, INVALID_HANDLE);                                                                                \
        REFUSE(!cuda_is_live(cuda_context_of(stream)), INVALID_CONTEXT);                                               \
    } while (0)

/* The same for functions that put work into a stream, or wait for all streams: another engine's work comes first. */
#define ENTER_WORK(name, stream)                                                                                       \
    do {                                                                                                               \
        ENTER_STREAM(name, stream);                                                                                    \
        int awaited = cuda_await(stream);                                                                              \
        REFUSE(awaited != SUCCESS, awaited);                                                                           \
    } while (0)

#define ENTER_ALL(name)                                                                                                \
    do {                                                                                                               \
        ENTER(name);                                                                                                   \
        int awaited = cuda_await(SIM_EVERY_STREAM);                                                                    \
        REFUSE(awaited != SUCCESS, awaited);                                                                           \
    } while (0)

#endif
