/*
 * Shared by the sources of the simulated libcudla.
 *
 * This is a DRIVER SIMULATOR for tests: cuDLA 1.x without an accelerator, beside CUDA and standalone. It shows nothing
 * about a real accelerator. It follows the cuDLA API reference and CUDA for Tegra, 5, and is strict about rules that
 * these documents leave to the caller.
 *
 * Tasks run asynchronously. Each handle has a thread that takes its tasks in the order of submission, waits for the
 * dependencies of each task, and lets an engine thread run it: so an engine may hang, and the task still times out.
 * The arithmetic is real (cudla_loadable.h), so results can be checked.
 *
 * Faults (scenario.h): every function is an entry point by its own name. For each task an engine also enters
 * `cudlaTask`, and `cudlaTask.dla0` with the engine's number.
 * There, a status is an error that is found later, a hang is the firmware's, and `corrupt` is a data mismatch.
 *
 * cudla.c           the library, devices and their handles
 * cudla_memory.c    memory that a handle may use
 * cudla_modules.c   loadables
 * cudla_standalone.c  NvSci memory, semaphores and events of standalone mode
 * cudla_submit.c    puts tasks into the queue
 * cudla_run.c       takes tasks out of the queue and runs them on the engine
 * cudla_loadable.c  the simulator's own loadables, and their arithmetic
 */
#ifndef CODECFLEET_DRIVER_SIM_CUDLA_H
#define CODECFLEET_DRIVER_SIM_CUDLA_H

#include "cudla_api.h"
#include "cudla_loadable.h"
#include "external_work.h"
#include "nvsci.h"
#include "scenario.h"

#include <time.h>

#define ALIGNMENT_BYTES 32
#define SCI_ALIGNMENT_BYTES 512 /* what NVIDIA's samples request from NvSciBuf for a DLA */

/*
 * Devices, modules, memory and tasks
 */

/* Memory that a handle may use, with its address on the accelerator. */
typedef struct dla_region {
    struct dla_region *next;
    uint64_t address;
    const void *origin; /* the CUDA pointer, or the NvSci object */
    void *memory;
    size_t bytes;
    uint32_t flags;
    NvSciSyncObj semaphore; /* NULL: this is memory */
    uint32_t users; /* tasks that have not ended */
} dla_region;

typedef struct dla_module {
    struct dla_device *device;
    dla_loadable loadable;
    bool diagnostics;
} dla_module;

/* One task on an engine. The engine thread frees it if no caller waits for it any more. */
typedef struct dla_run {
    int gpu;
    int number; /* of the accelerator */
    bool skip;
    uint64_t serial; /* the task's */
    const dla_loadable *loadable;
    bool statistics;
    void *memory[DLA_TENSORS_MOST];
    bool computing;
    bool ended;
    bool abandoned;
    int status;
} dla_run;

typedef struct dla_task {
    struct dla_task *next;
    struct dla_device *device;
    void *stream;
    uint64_t serial; /* of submission, for all handles together */
    bool is_running; /* on the engine, which takes one task at a time */
    dla_run *run;
    uint32_t region_count;
    dla_region *regions[DLA_TENSORS_MOST];
    uint32_t wait_count;
    NvSciSyncFence *waits; /* the task begins after these */
    dla_region *signals;   /* the semaphore that is signalled at the end; NULL: none */
    NvSciSyncFence *end;   /* the caller's fence of that signal */
} dla_task;

typedef struct dla_device {
    struct dla_device *next;
    int number;
    int gpu;
    bool standalone;
    bool loaded_once;
    bool closing;
    uint32_t timeout_ms;
    int error; /* of the first task that failed; it is kept */
    dla_module *module;
    dla_region *regions;
    uint64_t next_address;
    uint32_t unfinished;
} dla_device;

/*
 * One lock guards the whole library; changes that others wait for are signalled. In cudla.c.
 */
void take_lock(void);
void give_lock(void);
void tell_change(void);
void wait_for_change(void);
void wait_for_change_until(struct timespec when);
struct timespec time_after_ms(uint64_t milliseconds); /* by the monotonic clock */
bool is_before(struct timespec when);

/* Guarded by the lock. */
extern dla_device *devices;
extern dla_task *tasks; /* all tasks that have not ended, oldest first */
extern uint64_t serials;

/* Executes the scenario's faults for a call; true if the function must return *status. */
bool is_refused(const char *function, int gpu, int *status);

/* The device of a handle; NULL if the handle is unknown. The caller holds the lock. */
dla_device *device_of(cudlaDevHandle handle);

/* The GPU that a handle uses, for the scenario's faults. */
int gpu_of(cudlaDevHandle handle);

/* In libcuda. Weak, because libcudla also works with a libcuda without it: submissions then wait for their tasks. */
__attribute__((weak)) sim_external_wait_setter sim_cuda_set_external_wait;
__attribute__((weak)) int sim_cuda_finish(void *stream);

/* In cudla_run.c. */
void *device_main(void *device); /* a handle's thread; frees the device when the device is closing */
int start_thread(void *(*main)(void *), void *argument);
bool is_stream_busy(void *stream, uint64_t serial); /* with a task that was submitted before `serial` */
int wait_for_stream(void *stream, bool *finished);  /* libcuda's question: external_work.h */

/* In cudla_memory.c: the memory that a handle has at an accelerator's address; NULL if there is none. */
dla_region *region_at(const dla_device *device, const uint64_t *address);
int add_region(dla_device *device, const dla_region *wanted, uint64_t **address);

/* In cudla_standalone.c. The caller holds the lock. */
int check_events(const dla_device *device, const cudlaTask *list, uint32_t count);
int bind_events(dla_task *task, const cudlaTask *source);
bool are_waits_over(const dla_task *task);
void free_waits(dla_task *task);

#endif
