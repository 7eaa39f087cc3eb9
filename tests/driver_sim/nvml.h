/*
 * Shared by the sources of the simulated libnvidia-ml.
 *
 * This is a DRIVER SIMULATOR for tests; every device's name says so. It gives the same answers as
 * codecfleet.testing.FakeNvml, according to the NVML API Reference Manual, the vGPU Management SDK guide, and
 * measurements of one H200; the same tests check both. For functions that are not simulated, nvidia-ml-py says
 * FUNCTION_NOT_FOUND. The use of a device (memory, processes, encoder sessions, Xids) is the state of the simulated
 * machine.
 *
 * Faults (scenario.h): a fault may name a function with or without its suffix, such as "_v2".
 *
 * nvml.c             the library, handles, the refusals of each kind of device
 * nvml_board.c       identity, clocks, power, temperature, health
 * nvml_use.c         memory, processes, sessions, use of each engine (GPM)
 * nvml_mig.c         MIG: profiles and MIG devices
 * nvml_instances.c   GPU instances and compute instances
 * nvml_events.c      Xid events
 * nvml_vgpu_types.c  types of vGPUs
 * nvml_vgpu.c        hosts of vGPUs, and running vGPUs
 */
#ifndef CODECFLEET_DRIVER_SIM_NVML_H
#define CODECFLEET_DRIVER_SIM_NVML_H

#include "nvml_api.h"
#include "scenario.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)
#define SAMPLED_AT_US UINT64_C(1700000000000000)

enum { TURING = 6, AMPERE = 7, ADA = 8, HOPPER = 9 };

/* The subject of a query. */
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
 * The beginning of every function: each of these executes the scenario's faults for a call, and returns NVML_SUCCESS,
 * or the status that the function must return. The last four begin a query of a GPU or a slice, of a GPU only, of a
 * slice only, and of a host of vGPUs only.
 */
int enter_open(const char *function, int gpu);
int ask(const char *function, nvmlDevice_t handle, subject *asked);
int ask_gpu(const char *function, nvmlDevice_t handle, subject *asked);
int ask_slice(const char *function, nvmlDevice_t handle, subject *asked);
int ask_host(const char *function, nvmlDevice_t handle, subject *asked);

int put_text(char *out, unsigned bytes, const char *text);

/* NVML's way to return a list: if there is no room, it returns the list's length. */
int put_list(const void *elements, size_t element_bytes, unsigned count, unsigned *room, void *out);

uint64_t monotonic_us(void);
unsigned least(unsigned one, unsigned other);

/* The profile of a GPU with this id; NULL if there is none. */
const sim_profile *profile_with_id(const sim_device *gpu, unsigned id);

/* Tells whether a MIG device is the first of its GPU instance, which it then represents. */
bool is_gpu_instance(const sim_device *gpu, int slice);

/* A function of a device that returns one number. `asked` is the subject in `value`. */
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

/* The same, for a function that takes a number, `which`, to say what is queried. */
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

/* A function of a device that returns two numbers. */
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
