/*
 * Shared by the simulated libraries: the scenario, its faults, the trace, and the state of the simulated machine.
 *
 * This is a DRIVER SIMULATOR for tests. It is not a driver, and every device name it shows ends in "(simulated)".
 * scenario.c and machine.c are built once, into libcodecfleet_sim.so.1, to which the simulated libcuda, libnvcuvid,
 * libnvidia-encode, libnvidia-ml and libcudla are linked: one process has one scenario, whichever libraries it loads.
 *
 * Environment:
 *   DRIVER_SIM        the scenario file; without it the machine has a driver, but no device
 *   DRIVER_SIM_TRACE  a file to which every call is appended, one line each
 *   DRIVER_SIM_STATE  a file with the machine's state (fault counters, lost devices, Xids, memory, sessions), so that
 *                     several processes share one machine; without it each process has its own machine
 *   CUDA_VISIBLE_DEVICES  as with the real driver
 *
 * A "device" number below is the index of a GPU in the scenario (its NVML index), whatever CUDA_VISIBLE_DEVICES says.
 * SIM_NO_DEVICE stands for "none". All functions may be called from any thread.
 */
#ifndef CODECFLEET_DRIVER_SIM_SCENARIO_H
#define CODECFLEET_DRIVER_SIM_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_NO_DEVICE (-1)
#define SIM_UNKNOWN (-1)
#define SIM_TEXT_BYTES 96
#define SIM_DEVICES_MOST 32
#define SIM_SLICES_MOST 8
#define SIM_PROFILES_MOST 24
#define SIM_VGPUS_MOST 16
#define SIM_VGPU_TYPES_MOST 64
#define SIM_CAPABILITIES_MOST 96
#define SIM_SESSIONS_MOST 256
#define SIM_PROCESSES_MOST 128

typedef enum sim_engine {
    SIM_NVDEC,
    SIM_NVENC,
    SIM_NVJPG,
    SIM_OFA,
    SIM_DLA,
    SIM_ENGINES
} sim_engine;

/* One case that an engine of the device supports. Cases that are not listed are not supported. */
typedef struct sim_capability {
    bool encode;    /* false: decode */
    char codec[12]; /* h264 hevc av1 vp9 vp8 mpeg2 mpeg4 vc1 jpeg */
    int chroma;     /* 400, 420, 422 or 444 */
    int bit_depth;
    unsigned width_max;
    unsigned height_max;
} sim_capability;

/* One MIG device of a GPU: a compute instance. It shares the memory and engines of its GPU instance. */
typedef struct sim_slice {
    char uuid[SIM_TEXT_BYTES];
    char profile[SIM_TEXT_BYTES]; /* of the GPU instance: "1g.18gb" */
    char name[SIM_TEXT_BYTES];    /* of the MIG device: "1c.3g.71gb"; for a whole GPU instance, the profile */
    int gpu_instance;
    int compute_instance;
    unsigned compute_slices;
    unsigned start, size; /* the place of the GPU instance, in slices of the GPU's memory */
    uint64_t memory_bytes;
    int engines[SIM_ENGINES];
} sim_slice;

/* A kind of GPU instance into which a GPU can be divided. Placements are in slices of the GPU's memory. */
typedef struct sim_profile {
    char name[SIM_TEXT_BYTES];
    unsigned kind, id, slices, most;
    unsigned size, start_count, starts[SIM_SLICES_MOST];
    uint64_t memory_bytes;
    int engines[SIM_ENGINES];
} sim_profile;

/* A time in UTC; year 0: none. */
typedef struct sim_moment {
    unsigned year, month, day, hour, minute, second;
} sim_moment;

/* A type of vGPU that a host's GPU supports. */
typedef struct sim_vgpu_type {
    unsigned id, most;
    unsigned displays, width, height, frame_rate_limit;
    unsigned profile_id; /* of the GPU instance that it takes; 0xffffffff: the GPU is shared by time */
    uint64_t framebuffer_bytes;
    char name[SIM_TEXT_BYTES];
    char vgpu_class[SIM_TEXT_BYTES];
    char licences[SIM_TEXT_BYTES];
} sim_vgpu_type;

/* One running vGPU of a host's GPU. */
typedef struct sim_vgpu {
    unsigned instance;
    unsigned type_id;
    uint64_t framebuffer_bytes;
    unsigned gpu_instance; /* of the GPU instance on which it runs; 0xffffffff: none */
    bool licensed;
    sim_moment licence_expires;
    int frame_rate_limit; /* SIM_UNKNOWN: none */
    char uuid[SIM_TEXT_BYTES];
    char vm[SIM_TEXT_BYTES];
    char type_name[SIM_TEXT_BYTES];
} sim_vgpu;

/*
 * A device. For a MIG device (only sim_device_at gives these), `slice` is its number in the GPU, and name, uuid, memory
 * and engines are the MIG device's own; for a whole GPU, `slice` is SIM_UNKNOWN.
 */
typedef struct sim_device {
    int index;
    int slice;
    int account; /* the account for its memory: sim_memory_* */
    char name[SIM_TEXT_BYTES];
    char uuid[SIM_TEXT_BYTES];       /* "GPU-..." or "MIG-..." */
    char pci_bus_id[SIM_TEXT_BYTES]; /* "00000000:01:00.0" */
    char architecture[SIM_TEXT_BYTES]; /* NVML's name in lower case: "ada" */
    int compute_major;
    int compute_minor;
    uint64_t memory_bytes;
    int video_clock_max_mhz; /* SIM_UNKNOWN: NVML cannot tell */
    int engines[SIM_ENGINES];
    bool integrated; /* a Tegra iGPU */
    bool mig_enabled;
    bool mig_capable;
    int virtualization; /* NVML's mode: 0 none, 1 passthrough, 2 a vGPU, 3 host of vGPUs */
    char vgpu_scheduler[SIM_TEXT_BYTES];
    int encoder_sessions_max; /* SIM_UNKNOWN: no limit */
    unsigned decode_picture_us; /* the time for a picture; 0: as long as this processor needs */
    unsigned encode_picture_us;
    int slice_count;
    sim_slice slices[SIM_SLICES_MOST];
    int profile_count;
    sim_profile profiles[SIM_PROFILES_MOST];
    int vgpu_count;
    sim_vgpu vgpus[SIM_VGPUS_MOST];
    int vgpu_type_count;
    sim_vgpu_type vgpu_types[SIM_VGPU_TYPES_MOST];
    bool licence_applies; /* a vGPU software licence */
    bool licensed;
    sim_moment licence_expires;
    int capability_count;
    sim_capability capabilities[SIM_CAPABILITIES_MOST];
} sim_device;

typedef struct sim_node {
    char name[SIM_TEXT_BYTES];
    char driver[SIM_TEXT_BYTES]; /* "580.126.20" */
    int driver_major;            /* 580 */
    int cuda_version;            /* 13000 is CUDA 13.0 */
    char tegra[SIM_TEXT_BYTES];  /* "", "orin" or "thor" */
    int device_count;
} sim_node;

SIM_EXPORT const sim_node *sim_machine(void);

/* A whole GPU by its NVML index, whether or not CUDA sees it; NULL if there is none. */
SIM_EXPORT const sim_device *sim_gpu_at(int index);

/* The account for a GPU instance's memory; `slice` is a MIG device of the instance. */
SIM_EXPORT int sim_slice_account(const sim_device *gpu, int slice);

/* The devices that CUDA sees with CUDA_VISIBLE_DEVICES: see scenario_visible.c. */
SIM_EXPORT int sim_visible_count(void);
SIM_EXPORT const sim_device *sim_device_at(int visible_ordinal);

/* The capability that covers a case; NULL if there is none. `codec` and `chroma` are as in sim_capability. */
SIM_EXPORT const sim_capability *sim_find_capability(const sim_device *device, bool encode, const char *codec,
                                                     int chroma, int bit_depth);

/*
 * Faults and trace
 */

typedef enum sim_verdict {
    SIM_GO,     /* do the function's work */
    SIM_STATUS, /* return *status */
    SIM_SHORT,  /* NVENC: cut the bitstream short; NVDEC: leave the picture out */
    SIM_CORRUPT /* NVDEC: decode the picture with an error */
} sim_verdict;

/*
 * Must be called at the beginning of every entry point. Counts the call, appends "function device=D call=N" to the
 * trace (N counts the calls of this function in this process), and executes the scenario's faults: sleeps, hangs, ends
 * the process, breaks its CUDA, loses the device, raises an Xid. On a lost device the verdict is SIM_STATUS, with the
 * status that reports the loss in the function's library: 15 for nvml*, 20 for NvEnc* and nvEnc*, 6 for cudla*,
 * otherwise 999. A function that has no use for SIM_SHORT or SIM_CORRUPT treats them as SIM_GO.
 */
SIM_EXPORT sim_verdict sim_enter(const char *function, int device, int *status);

/* The same without a line in the trace, for a call with further names, such as a decoder's with the picture size. */
SIM_EXPORT sim_verdict sim_meet(const char *function, int device, int *status);

/*
 * The number that a function returns after sim_enter: the number of the scenario's `answer` fault, otherwise
 * `otherwise`. So a machine can change from one call to the next.
 */
SIM_EXPORT uint64_t sim_answer(uint64_t otherwise);

/* Appends "function key=value ..." to the trace. Values must not have spaces or line breaks. */
SIM_EXPORT void sim_trace(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tells whether there is a trace, so that callers need not format long lines for nothing. */
SIM_EXPORT bool sim_is_traced(void);

SIM_EXPORT void sim_lose(int device);
SIM_EXPORT bool sim_is_lost(int device);
SIM_EXPORT void sim_sleep_us(uint64_t microseconds);

/*
 * Xid events, in the order of their arrival. The scenario's own events (`xid K` lines) come first. Each reader keeps
 * the number of its next event; sim_wait_xid returns false after the time-out.
 */
typedef struct sim_xid {
    int device;
    uint64_t xid;
} sim_xid;

SIM_EXPORT void sim_raise_xid(int device, uint64_t xid);
SIM_EXPORT uint64_t sim_xid_count(void);
SIM_EXPORT bool sim_wait_xid(uint64_t number, unsigned timeout_ms, sim_xid *event);

/*
 * Memory. A device address is a host address. Every allocation is followed by a page that must not be touched, and is
 * counted against its device's memory.
 */

typedef enum sim_memory_kind { SIM_DEVICE_MEMORY, SIM_HOST_MEMORY, SIM_MANAGED_MEMORY } sim_memory_kind;

typedef struct sim_allocation {
    uintptr_t base;
    size_t bytes;
    sim_memory_kind kind;
    int account;       /* of the device; SIM_NO_DEVICE for host memory */
    bool registered;   /* host memory that belongs to the caller (cuMemHostRegister) */
    uint64_t owner;    /* the value from the caller: libcuda gives the context's address */
    uint64_t identity; /* numbers allocations from 1 */
} sim_allocation;

/* Returns NULL if the device has not enough memory left (host memory: if the machine has not). */
SIM_EXPORT void *sim_memory_alloc(const sim_device *device, size_t bytes, sim_memory_kind kind, uint64_t owner);

/* Registers the caller's own memory as pinned. False if it overlaps known memory. */
SIM_EXPORT bool sim_memory_register(void *address, size_t bytes, uint64_t owner);

/* Frees or forgets an allocation by its base address; false if there is none. */
SIM_EXPORT bool sim_memory_free(void *base);

/* Frees all memory that the owner still has. */
SIM_EXPORT void sim_memory_free_of(uint64_t owner);

/* Finds the allocation that holds an address; false if there is none. `found` may be NULL. */
SIM_EXPORT bool sim_memory_find(const void *address, sim_allocation *found);

/* Tells whether `bytes` bytes from the address on are within one allocation. */
SIM_EXPORT bool sim_memory_holds(const void *address, size_t bytes);

/* The bytes in use on a device, by all processes that share the state (sim_device.account). */
SIM_EXPORT uint64_t sim_memory_used(int account);

/* A process that has memory or a context on the GPU with this index. */
typedef struct sim_process {
    int pid;
    uint64_t used_bytes;
} sim_process;

SIM_EXPORT int sim_processes(int device, sim_process *out, int most);

/*
 * Codec sessions, which NVML reports, and whose number NVENC limits.
 */

typedef struct sim_session {
    bool open;
    int pid;
    int device;
    int slice; /* SIM_UNKNOWN: the whole GPU */
    sim_engine engine;
    char codec[12];
    unsigned width;
    unsigned height;
    uint64_t frames;
    uint64_t opened_us; /* of the monotonic clock */
} sim_session;

/*
 * Traces "session engine=E uuid=U ...", where U is the device's own UUID. Returns the session's number; -1 if the
 * device has encoder_sessions_max sessions, or if the table is full.
 */
SIM_EXPORT int sim_session_open(const sim_device *device, sim_engine engine, const char *codec, unsigned width,
                                unsigned height);
SIM_EXPORT void sim_session_close(int session);
SIM_EXPORT void sim_session_count_frame(int session);

/* Copies the open sessions of all processes that share the state; returns how many. */
SIM_EXPORT int sim_sessions(sim_session *out, int most);

/*
 * Functions of the simulated libcuda (cuda.c), to which nvcuvid.c, nvenc.c and cudla.c are linked.
 */
struct CUctx_st;

/* The device of a context, of the current context for NULL. NULL if there is no such context. */
SIM_EXPORT const sim_device *sim_cuda_device(struct CUctx_st *context);

#endif
