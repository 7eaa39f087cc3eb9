/*
 * Work of another engine on a CUDA stream: how the simulated libcudla puts a DLA task into a stream of the simulated
 * libcuda (CUDA for Tegra, 5.1.4 and 5.1.5).
 *
 * This is part of a DRIVER SIMULATOR for tests.
 *
 * Streams of the simulated libcuda have queues of their own work (deferred_work.h); they must also know whether another
 * engine still works for them. libcudla gives libcuda one function for this question, and libcuda calls it
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
 * CUDA_ERROR_EXTERNAL_DEVICE (911) if work of this process has failed. Libcuda returns all other values than 0
 * unchanged. Like the errors of a context, the error stays, unless CUDA_EXTERNAL_ENGINE_EXECUTION_MODE isolates errors.
 * If `finished` is not NULL, nothing is waited for: *finished tells whether the stream's work has ended (otherwise
 * libcuda answers CUDA_ERROR_NOT_READY).
 */
typedef int sim_external_wait(void *stream, bool *finished);

/* A function of the simulated libcuda: tells libcuda which function to ask. */
typedef void sim_external_wait_setter(sim_external_wait *wait);
__attribute__((visibility("default"))) sim_external_wait_setter sim_cuda_set_external_wait;

#endif
