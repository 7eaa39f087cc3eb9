/*
 * Work that waits in CUDA streams: the interface of the simulated libcuda for the other libraries of this DRIVER
 * SIMULATOR for tests.
 *
 * With DRIVER_SIM_DEFER=SEED (not 0), a stream does nothing before somebody waits for it. A wait runs the work that it
 * needs, in the order of streams and events, and sometimes, as the seed decides, a piece of another stream's work. So a
 * program gets wrong bytes if it reads memory before it waits for the writer, or writes to memory without waiting for a
 * reader. Without the variable, all work is done when the call returns.
 */
#ifndef CODECFLEET_DRIVER_SIM_DEFERRED_WORK_H
#define CODECFLEET_DRIVER_SIM_DEFERRED_WORK_H

#include <stdint.h>

/* Does a piece of work once, and frees its argument. Returns a CUresult. */
typedef int sim_work(void *argument);

/*
 * Puts work into a stream of the current context, or does it now if nothing is deferred. NULL and 1 are the legacy
 * default stream, which is in order with all streams except non-blocking ones; 2 is the calling thread's default
 * stream.
 */
__attribute__((visibility("default"))) int sim_cuda_put(void *stream, sim_work *work, void *argument);

/* Does all work in a stream, or in every stream (SIM_EVERY_STREAM), and returns the first error. */
__attribute__((visibility("default"))) int sim_cuda_finish(void *stream);

/* The same for a context's default stream, whichever context is current. */
__attribute__((visibility("default"))) int sim_cuda_finish_in(void *context, void *stream);

#endif
