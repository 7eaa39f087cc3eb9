/*
 * The simulated cuDLA: the way of tasks from the queue onto the engine, and the notifications of streams.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_EXTERNAL_DEVICE 911
#define ISOLATED_ERRORS 2 /* of CUDA_EXTERNAL_ENGINE_EXECUTION_MODE */

static bool stream_failed; /* guarded by the lock: whether a task in any stream of CUDA has failed */

/* A status of the engine, as the faults of `cudlaTask` give it. */
static int enter_engine(const dla_run *run) {
    char of_this_engine[32];
    snprintf(of_this_engine, sizeof of_this_engine, "cudlaTask.dla%d", run->number);
    const char *const names[] = {"cudlaTask", of_this_engine};
    for (size_t i = 0; i < 2; i++) {
        int status = cudlaSuccess;
        sim_verdict verdict = sim_enter(names[i], run->gpu, &status);
        if (verdict == SIM_STATUS) {
            return status;
        }
        if (verdict == SIM_CORRUPT) {
            return cudlaErrorDlaErrDataMismatch;
        }
    }
    return cudlaSuccess;
}

static void write_statistics(const dla_run *run) {
    const dla_header *header = &run->loadable->header;
    uint32_t first = header->input_count + header->output_count;
    for (uint32_t i = first; i < first + header->statistics_count; i++) {
        memcpy(run->memory[i], &run->serial, sizeof run->serial);
    }
}

static void compute(const dla_run *run) {
    if (run->loadable->header.busy_us) {
        sim_sleep_us(run->loadable->header.busy_us);
    }
    dla_compute(run->loadable, run->memory);
    if (run->statistics) {
        write_statistics(run);
    }
}

/* Reserves the memory for the arithmetic, unless the time has run out. */
static bool may_compute(dla_run *run, int status) {
    take_lock();
    run->computing = !run->abandoned && !run->skip && status == cudlaSuccess;
    bool may = run->computing;
    tell_change();
    give_lock();
    return may;
}

static void *engine_main(void *argument) {
    dla_run *run = argument;
    int status = run->skip ? cudlaSuccess : enter_engine(run);
    if (may_compute(run, status)) {
        compute(run);
    }
    take_lock();
    bool abandoned = run->abandoned;
    run->status = status;
    run->ended = true;
    run->computing = false;
    tell_change();
    give_lock();
    if (abandoned) {
        free(run);
    }
    return NULL;
}

int start_thread(void *(*main)(void *), void *argument) {
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, main, argument);
    if (!failed) {
        pthread_detach(thread);
    }
    return failed;
}

/* Waits for the engine for at most a task's time limit, which cuts no arithmetic short. The caller holds the lock. */
static int status_of_run(dla_run *run, uint32_t timeout_ms) {
    struct timespec until = time_after_ms(timeout_ms);
    while (!run->ended && (run->computing || is_before(until))) {
        if (run->computing) {
            wait_for_change();
        } else {
            wait_for_change_until(until);
        }
    }
    if (!run->ended) {
        run->abandoned = true;
        return cudlaErrorDlaErrEngineTimeout;
    }
    int status = run->status;
    free(run);
    return status;
}

static int run_task(dla_task *task) {
    dla_run *run = task->run;
    uint32_t timeout_ms = task->device->timeout_ms;
    if (start_thread(engine_main, run)) {
        free(run);
        return cudlaErrorOs;
    }
    return status_of_run(run, timeout_ms);
}

static dla_task *oldest_task(const dla_device *device) {
    dla_task *task = tasks;
    while (task && task->device != device) {
        task = task->next;
    }
    return task;
}

bool is_stream_busy(void *stream, uint64_t serial) {
    for (const dla_task *each = tasks; each && each->serial < serial; each = each->next) {
        if (!each->device->standalone && (stream == SIM_EVERY_STREAM || each->stream == stream)) {
            return true;
        }
    }
    return false;
}

/* Whether no task, of any handle, is on the accelerator with this number. */
static bool is_engine_free(int number) {
    for (const dla_task *each = tasks; each; each = each->next) {
        if (each->is_running && each->device->number == number) {
            return false;
        }
    }
    return true;
}

static bool may_start(const dla_task *task) {
    bool is_its_turn = task->device->standalone ? are_waits_over(task) : !is_stream_busy(task->stream, task->serial);
    return is_its_turn && is_engine_free(task->device->number);
}

static void end_task(dla_task *task, int status) {
    dla_device *device = task->device;
    dla_task **link = &tasks;
    while (*link != task) {
        link = &(*link)->next;
    }
    *link = task->next;
    for (uint32_t i = 0; i < task->region_count; i++) {
        task->regions[i]->users--;
    }
    if (task->signals) {
        task->signals->users--;
    }
    device->unfinished--;
    if (status != cudlaSuccess && device->error == cudlaSuccess) {
        device->error = status;
    }
    if (status != cudlaSuccess && !device->standalone) {
        stream_failed = true;
    }
    tell_change();
    free_waits(task);
    free(task);
}

void *device_main(void *argument) {
    dla_device *device = argument;
    take_lock();
    while (!device->closing) {
        dla_task *task = oldest_task(device);
        if (!task || !may_start(task)) {
            wait_for_change();
            continue;
        }
        task->is_running = true;
        NvSciSyncObj signalled = task->signals ? task->signals->semaphore : NULL;
        end_task(task, run_task(task));
        if (signalled) { /* also for a task that failed, because fences carry no errors */
            give_lock();
            sim_sci_signal(signalled);
            take_lock();
        }
    }
    free(device);
    give_lock();
    return NULL;
}

static bool errors_are_isolated(void) {
    const char *mode = getenv("CUDA_EXTERNAL_ENGINE_EXECUTION_MODE");
    return mode && (strtol(mode, NULL, 0) & ISOLATED_ERRORS);
}

int wait_for_stream(void *stream, bool *finished) {
    take_lock();
    uint64_t serial = serials + 1; /* later submissions are not waited for */
    if (finished) {
        *finished = !is_stream_busy(stream, serial);
    }
    while (!finished && is_stream_busy(stream, serial)) {
        wait_for_change();
    }
    int result = stream_failed && !errors_are_isolated() ? CUDA_EXTERNAL_DEVICE : 0;
    give_lock();
    return result;
}
