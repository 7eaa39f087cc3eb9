/*
 * What the simulated libraries share: the scenario, its faults, the trace, and the state of the simulated machine.
 *
 * This is a DRIVER SIMULATOR for tests. It is not a driver, and every device name it shows ends in "(simulated)".
 * scenario.c and machine.c are built once, into libcodecfleet_sim.so.1, to which the simulated libcuda, libnvcuvid,
 * libnvidia-encode, libnvidia-ml and libcudla are linked: one process has one scenario, whichever of them it loads.
 *
 * Environment:
 *   DRIVER_SIM        the scenario file; without it the machine has a driver and no device
 *   DRIVER_SIM_TRACE  a file to which every call is appended, one line each
 *   DRIVER_SIM_STATE  a file that holds the machine's state (fault counters, lost devices, Xids, memory,
 *                                sessions), so that several processes share one machine; without it each has its own
 *   CUDA_VISIBLE_DEVICES         as with the real driver
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

/* One case that an engine of the device can do. What is not listed, it cannot. */
typedef struct sim_capability {
    bool encode;    /* false: decode */
    char codec[12]; /* h264 hevc av1 vp9 vp8 mpeg2 mpeg4 vc1 jpeg */
    int chroma;     /* 400, 420, 422 or 444 */
    int bit_depth;
    unsigned width_max;
    unsigned height_max;
} sim_capability;

/* One MIG device of a GPU: a compute instance. Memory and engines are its GPU instance's, and shared within it. */
typedef struct sim_slice {
    char uuid[SIM_TEXT_BYTES];
    char profile[SIM_TEXT_BYTES]; /* of the GPU instance: "1g.18gb" */
    char name[SIM_TEXT_BYTES];    /* of the MIG device: "1c.3g.71gb", or as the profile where it has all of it */
    int gpu_instance;
    int compute_instance;
    unsigned compute_slices;
    unsigned start, size; /* where the GPU instance lies, in slices of the GPU's memory */
    uint64_t memory_bytes;
    int engines[SIM_ENGINES];
} sim_slice;

/* A kind of GPU instance that a GPU can be cut into. Placements are in slices of its memory. */
typedef struct sim_profile {
    char name[SIM_TEXT_BYTES];
    unsigned kind, id, slices, most;
    unsigned size, start_count, starts[SIM_SLICES_MOST];
    uint64_t memory_bytes;
    int engines[SIM_ENGINES];
} sim_profile;

/* A moment of UTC; year 0: none. */
typedef struct sim_moment {
    unsigned year, month, day, hour, minute, second;
} sim_moment;

/* A type of vGPU that a host's GPU supports. */
typedef struct sim_vgpu_type {
    unsigned id, most;
    unsigned displays, width, height, frame_rate_limit;
    unsigned profile_id; /* of the GPU instance that it takes; 0xffffffff: it shares the GPU by time */
    uint64_t framebuffer_bytes;
    char name[SIM_TEXT_BYTES];
    char vgpu_class[SIM_TEXT_BYTES];
    char licences[SIM_TEXT_BYTES];
} sim_vgpu_type;

/* One vGPU that runs on a host's GPU. */
typedef struct sim_vgpu {
    unsigned instance;
    unsigned type_id;
    uint64_t framebuffer_bytes;
    unsigned gpu_instance; /* that it runs on; 0xffffffff: none */
    bool licensed;
    sim_moment licence_expires;
    int frame_rate_limit; /* SIM_UNKNOWN: none */
    char uuid[SIM_TEXT_BYTES];
    char vm[SIM_TEXT_BYTES];
    char type_name[SIM_TEXT_BYTES];
} sim_vgpu;

/*
 * A device. Of a MIG device (only sim_device_at gives these) `slice` is its number in the GPU, and name, uuid, memory
 * and engines are its own; of a whole GPU `slice` is SIM_UNKNOWN.
 */
typedef struct sim_device {
    int index;
    int slice;
    int account; /* by which its memory is counted: sim_memory_* */
    char name[SIM_TEXT_BYTES];
    char uuid[SIM_TEXT_BYTES];       /* "GPU-..." or "MIG-..." */
    char pci_bus_id[SIM_TEXT_BYTES]; /* "00000000:01:00.0" */
    char architecture[SIM_TEXT_BYTES]; /* NVML's word, lower case: "ada" */
    int compute_major;
    int compute_minor;
    uint64_t memory_bytes;
    int video_clock_max_mhz; /* SIM_UNKNOWN: cannot be asked */
    int engines[SIM_ENGINES];
    bool integrated; /* a Tegra iGPU */
    bool mig_enabled;
    bool mig_capable;
    int virtualization; /* NVML's mode: 0 none, 1 passthrough, 2 a vGPU, 3 host of vGPUs */
    char vgpu_scheduler[SIM_TEXT_BYTES];
    int encoder_sessions_max; /* SIM_UNKNOWN: no limit */
    unsigned decode_picture_us; /* how long a picture takes; 0: as long as this processor needs */
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

/* A whole GPU by its NVML index, whatever is visible to CUDA; NULL where there is none. */
SIM_EXPORT const sim_device *sim_gpu_at(int index);

/* By which the memory of a GPU instance is counted; `slice` is a MIG device of it. */
SIM_EXPORT int sim_slice_account(const sim_device *gpu, int slice);

/* What CUDA sees by CUDA_VISIBLE_DEVICES: see scenario_visible.c. */
SIM_EXPORT int sim_visible_count(void);
SIM_EXPORT const sim_device *sim_device_at(int visible_ordinal);

/* The capability that covers a case, or NULL. `codec` and `chroma` as in sim_capability. */
SIM_EXPORT const sim_capability *sim_find_capability(const sim_device *device, bool encode, const char *codec,
                                                     int chroma, int bit_depth);

/*
 * Faults and trace
 */

typedef enum sim_verdict {
    SIM_GO,     /* do what the function does */
    SIM_STATUS, /* return *status */
    SIM_SHORT,  /* NVENC: cut the bitstream short; NVDEC: leave the picture out */
    SIM_CORRUPT /* NVDEC: decode the picture with an error */
} sim_verdict;

/*
 * To be called at the top of every entry point. Counts the call, appends "function device=D call=N" to the trace (N
 * counts the calls of this function in this process), and does what the scenario's faults say: sleeps, hangs, ends
 * the process, breaks its CUDA, loses the device, raises an Xid. On a lost device the verdict is SIM_STATUS with the status by which
 * the function's library says so: 15 for nvml*, 20 for NvEnc* and nvEnc*, 6 for cudla*, else 999.
 * A function that has no use for SIM_SHORT or SIM_CORRUPT takes them for SIM_GO.
 */
SIM_EXPORT sim_verdict sim_enter(const char *function, int device, int *status);

/* The same without a line in the trace, for a call that more than one name is about: a decoder's by its picture size. */
SIM_EXPORT sim_verdict sim_meet(const char *function, int device, int *status);

/*
 * What a function that gives one number is to give after sim_enter: what the scenario says by an `answer` fault, else
 * `otherwise`. So a machine changes from one call to the next.
 */
SIM_EXPORT uint64_t sim_answer(uint64_t otherwise);

/* Appends "function key=value ..." to the trace. Values must hold no spaces and no line breaks. */
SIM_EXPORT void sim_trace(const char *function, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tells whether somebody reads a trace: to spare the work of writing a long line. */
SIM_EXPORT bool sim_is_traced(void);

SIM_EXPORT void sim_lose(int device);
SIM_EXPORT bool sim_is_lost(int device);
SIM_EXPORT void sim_sleep_us(uint64_t microseconds);

/*
 * Xid events, in the order in which they came. The scenario's own (`xid K` lines) come first. A reader keeps its own
 * number of the next event; sim_wait_xid returns false after the time-out.
 */
typedef struct sim_xid {
    int device;
    uint64_t xid;
} sim_xid;

SIM_EXPORT void sim_raise_xid(int device, uint64_t xid);
SIM_EXPORT uint64_t sim_xid_count(void);
SIM_EXPORT bool sim_wait_xid(uint64_t number, unsigned timeout_ms, sim_xid *event);

/*
 * Memory. A device address is a host address. Every allocation is followed by a page that may not be touched, and is
 * counted against its device's memory.
 */

typedef enum sim_memory_kind { SIM_DEVICE_MEMORY, SIM_HOST_MEMORY, SIM_MANAGED_MEMORY } sim_memory_kind;

typedef struct sim_allocation {
    uintptr_t base;
    size_t bytes;
    sim_memory_kind kind;
    int account;       /* of the device; SIM_NO_DEVICE for host memory */
    bool registered;   /* host memory of the caller's own (cuMemHostRegister) */
    uint64_t owner;    /* what the caller gave: libcuda gives the context's address */
    uint64_t identity; /* counts allocations from 1 */
} sim_allocation;

/* Returns NULL where the device has not that much left (host memory: where the machine has not). */
SIM_EXPORT void *sim_memory_alloc(const sim_device *device, size_t bytes, sim_memory_kind kind, uint64_t owner);

/* Makes the caller's own memory known as pinned. False where it overlaps what is known. */
SIM_EXPORT bool sim_memory_register(void *address, size_t bytes, uint64_t owner);

/* Frees or forgets an allocation by its base address; false where there is none. */
SIM_EXPORT bool sim_memory_free(void *base);

/* Frees whatever the owner still has. */
SIM_EXPORT void sim_memory_free_of(uint64_t owner);

/* Finds the allocation that holds an address; false where none does. `found` may be NULL. */
SIM_EXPORT bool sim_memory_find(const void *address, sim_allocation *found);

/* Tells whether `bytes` bytes from the address lie within one allocation. */
SIM_EXPORT bool sim_memory_holds(const void *address, size_t bytes);

/* Bytes in use on a device, by all processes that share the state (sim_device.account). */
SIM_EXPORT uint64_t sim_memory_used(int account);

/* A process that has memory or a context on the GPU with this index. */
typedef struct sim_process {
    int pid;
    uint64_t used_bytes;
} sim_process;

SIM_EXPORT int sim_processes(int device, sim_process *out, int most);

/*
 * Codec sessions, so that NVML can tell of them and NVENC can refuse one too many.
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
 * Traces "session engine=E uuid=U ...", where U is the device's own. Returns the session's number, or -1:
 * encoder_sessions_max of the device is reached, or the table is full.
 */
SIM_EXPORT int sim_session_open(const sim_device *device, sim_engine engine, const char *codec, unsigned width,
                                unsigned height);
SIM_EXPORT void sim_session_close(int session);
SIM_EXPORT void sim_session_count_frame(int session);

/* Copies the open sessions of all processes that share the state; returns how many. */
SIM_EXPORT int sim_sessions(sim_session *out, int most);

/*
 * Given by the simulated libcuda (cuda.c), to which nvcuvid.c, nvenc.c and cudla.c are linked.
 */
struct CUctx_st;

/* The device of a context; of the current one where it is NULL. NULL where there is no such context. */
SIM_EXPORT const sim_device *sim_cuda_device(struct CUctx_st *context);

#endif
