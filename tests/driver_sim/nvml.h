/*
 * What the sources of the simulated libnvidia-ml share.
 *
 * This is a DRIVER SIMULATOR for tests; every device's name says so. It answers what codecfleet.testing.FakeNvml does,
 * restated from the NVML API Reference Manual, the vGPU Management SDK guide, and one H200 that was measured; the same
 * tests hold both to it. Functions that it lacks are missing, and nvidia-ml-py says FUNCTION_NOT_FOUND. What goes on
 * on a device (memory, processes, encoder sessions, Xids) is the simulated machine's own state.
 *
 * Faults (scenario.h): a function goes by its name without "_v2" and the like, and by its full name.
 *
 * nvml.c             the library, handles, what each kind of device refuses
 * nvml_board.c       identity, clocks, power, temperature, health
 * nvml_use.c         memory, processes, sessions, use by engine (GPM)
 * nvml_mig.c         MIG: profiles and MIG devices
 * nvml_instances.c   GPU instances and compute instances
 * nvml_events.c      Xid events
 * nvml_vgpu_types.c  kinds of vGPUs
 * nvml_vgpu.c        hosts of vGPUs, and vGPUs that run
 */
#ifndef CODECFLEET_DRIVER_SIM_NVML_H
#define CODECFLEET_DRIVER_SIM_NVML_H

#include "nvml_api.h"
#include "scenario.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)
#define SAMPLED_AT_US UINT64_C(1700000000000000)

enum { TURING = 6, AMPERE = 7, ADA = 8, HOPPER = 9 };

/* What a question is about. */
typedef struct subject {
    const sim_device *gpu;
    const sim_slice *slice; /* NULL: the whole GPU */
} subject;

/* `slice` is the number of a slice in its GPU, SIM_UNKNOWN for the whole GPU. */
nvmlDevice_t handle_of(int gpu, int slice);
int slice_number(const subject *asked);

int architecture_of(const sim_device *gpu); /* NVML's number; -1: unknown */
bool is_guest(const sim_device *gpu);
bool is_host(const sim_device *gpu);
bool is_geforce(const sim_device *gpu);

/*
 * What every function starts with: each does what the scenario says of a call, and returns NVML_SUCCESS, or what the
 * function is to return. The last four open a question about a GPU or a slice, a GPU alone, a slice alone, and a host
 * of vGPUs alone.
 */
int enter_open(const char *function, int gpu);
int ask(const char *function, nvmlDevice_t handle, subject *asked);
int ask_gpu(const char *function, nvmlDevice_t handle, subject *asked);
int ask_slice(const char *function, nvmlDevice_t handle, subject *asked);
int ask_host(const char *function, nvmlDevice_t handle, subject *asked);

int put_text(char *out, unsigned bytes, const char *text);

/* NVML's way to give a list: without room it tells how long it is. */
int put_list(const void *elements, size_t element_bytes, unsigned count, unsigned *room, void *out);

uint64_t monotonic_us(void);
unsigned least(unsigned one, unsigned other);

/* The profile of a GPU with this id, or NULL. */
const sim_profile *profile_with_id(const sim_device *gpu, unsigned id);

/* Tells whether a MIG device is the first of its GPU instance, for which it then stands. */
bool is_gpu_instance(const sim_device *gpu, int slice);

/* A function of a device that gives one number. `asked` is the subject in `value`. */
#define ANSWER_NUMBER(function, type, value)                                                                           \
    SIM_EXPORT int function(nvmlDevice_t handle, type *out) {                                                          \
        subject asked;                                                                                                 \
        int status = ask_gpu(#function, handle, &asked);                                                               \
        if (status != NVML_SUCCESS)                                                                                    \
            return status;                                                                                             \
        if (!out)                                                                                                      \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        *out = (type)sim_answer((uint64_t)(value));                                                                    \
        return NVML_SUCCESS;                                                                                           \
    }

/* The same, for a function that takes what is asked for as a number, `which`. */
#define ANSWER_NUMBER_OF(function, type, value)                                                                        \
    SIM_EXPORT int function(nvmlDevice_t handle, unsigned which, type *out) {                                          \
        subject asked;                                                                                                 \
        int status = ask_gpu(#function, handle, &asked);                                                               \
        (void)which;                                                                                                   \
        if (status != NVML_SUCCESS)                                                                                    \
            return status;                                                                                             \
        if (!out)                                                                                                      \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        *out = (type)sim_answer((uint64_t)(value));                                                                    \
        return NVML_SUCCESS;                                                                                           \
    }

/* A function of a device that gives two numbers. */
#define ANSWER_PAIR(function, type, first, second)                                                                     \
    SIM_EXPORT int function(nvmlDevice_t handle, type *out, type *other) {                                             \
        subject asked;                                                                                                 \
        int status = ask_gpu(#function, handle, &asked);                                                               \
        if (status != NVML_SUCCESS)                                                                                    \
            return status;                                                                                             \
        if (!out || !other)                                                                                            \
            return NVML_ERROR_INVALID_ARGUMENT;                                                                        \
        *out = (type)sim_answer((uint64_t)(first));                                                                    \
        *other = (type)(second);                                                                                       \
        return NVML_SUCCESS;                                                                                           \
    }

#define ANSWER_TEXT(function, text)                                                                                    \
    SIM_EXPORT int function(nvmlDevice_t handle, char *out, unsigned bytes) {                                          \
        subject asked;                                                                                                 \
        int status = ask_gpu(#function, handle, &asked);                                                               \
        return status == NVML_SUCCESS ? put_text(out, bytes, (text)) : status;                                         \
    }

#endif
