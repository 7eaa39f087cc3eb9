/*
 * Work of another engine on a CUDA stream: how the simulated libcudla puts a DLA task into a stream of the simulated
 * libcuda (CUDA for Tegra, 5.1.4 and 5.1.5).
 *
 * This is part of a DRIVER SIMULATOR for tests.
 *
 * Streams of the simulated libcuda have queues of their own work (deferred_work.h); they need to know that something
 * else is still at work in their name. libcudla gives libcuda one function to ask, and libcuda calls it
 *   - with the stream's handle before everything that is put into that stream (copies, memsets, kernels, host
 *     functions, an event that is recorded) and in cuStreamSynchronize;
 *   - with SIM_EVERY_STREAM in cuCtxSynchronize, cuMemFree, and before copies without a stream;
 *   - with `finished` set, which does not wait, in cuStreamQuery (cuEventQuery).
 * It is called with no lock held.
 */
#ifndef CODECFLEET_DRIVER_SIM_EXTERNAL_WORK_H
#define CODECFLEET_DRIVER_SIM_EXTERNAL_WORK_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_EVERY_STREAM ((void *)~(uintptr_t)0)

/*
 * Waits until all external work that was submitted to the stream has ended, and returns a CUresult: CUDA_SUCCESS, or
 * CUDA_ERROR_EXTERNAL_DEVICE (911) where work of this process has failed. Libcuda returns what is not 0 as it is; it
 * keeps coming, as the errors of a context do, unless CUDA_EXTERNAL_ENGINE_EXECUTION_MODE isolates them.
 * Where `finished` is not NULL nothing is waited for: *finished tells whether the stream's work has ended (libcuda
 * answers CUDA_ERROR_NOT_READY where it has not).
 */
typedef int sim_external_wait(void *stream, bool *finished);

/* Given by the simulated libcuda: tells it whom to ask. */
typedef void sim_external_wait_setter(sim_external_wait *wait);
__attribute__((visibility("default"))) sim_external_wait_setter sim_cuda_set_external_wait;

#endif
