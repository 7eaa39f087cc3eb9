/*
 * Work that waits in CUDA streams: what the simulated libcuda offers to the other libraries of this
 * DRIVER SIMULATOR for tests.
 *
 * With DRIVER_SIM_DEFER=SEED (not 0) a stream does nothing before somebody waits for it: a wait runs what it needs, in
 * the order of streams and events, and sometimes, by the seed, a piece of another stream's work too. So a program that
 * reads memory before it waits for its writer, or writes to memory that a reader has not been waited for, has wrong
 * bytes. Without the variable everything is done when the call returns.
 */
#ifndef CODECFLEET_DRIVER_SIM_DEFERRED_WORK_H
#define CODECFLEET_DRIVER_SIM_DEFERRED_WORK_H

#include <stdint.h>

/* Does a piece of work, once; it frees its argument. Returns a CUresult. */
typedef int sim_work(void *argument);

/*
 * Puts work into a stream of the current context, or does it now where nothing is deferred. NULL and 1 are the legacy
 * default stream, which is in order with all streams that were not made non-blocking; 2 is the calling thread's.
 */
__attribute__((visibility("default"))) int sim_cuda_put(void *stream, sim_work *work, void *argument);

/* Does all that is in a stream, or in every stream (SIM_EVERY_STREAM), and returns the first error there was. */
__attribute__((visibility("default"))) int sim_cuda_finish(void *stream);

/* The same of a context's default stream, whichever context is current. */
__attribute__((visibility("default"))) int sim_cuda_finish_in(void *context, void *stream);

#endif
