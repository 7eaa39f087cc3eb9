/*
 * The simulated cuDLA: the way of tasks into the queue.
 *
 * A list of tasks is checked as a whole before any task is put into the queue. The caller holds the lock for all
 * functions.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <stdlib.h>

typedef struct submission {
    dla_device *device;
    const cudlaTask *list;
    uint32_t count;
    void *stream;
    uint32_t flags;
} submission;

static int check_submission(const submission *given) {
    const uint32_t known = CUDLA_SUBMIT_NOOP | CUDLA_SUBMIT_SKIP_LOCK_ACQUIRE | CUDLA_SUBMIT_DIAGNOSTICS_TASK;
    if (!given->device) {
        return cudlaErrorInvalidDevice;
    }
    if (given->device->error != cudlaSuccess) {
        return given->device->error;
    }
    if (!given->list || !given->count || given->flags & ~known) {
        return cudlaErrorInvalidParam;
    }
    if (given->device->standalone && given->stream) {
        return cudlaErrorInvalidParam; /* "must be specified as NULL" */
    }
    return check_events(given->device, given->list, given->count);
}

static int check_module(const submission *given, const cudlaTask *source) {
    const dla_module *module = given->device->module;
    bool diagnostics = given->flags & CUDLA_SUBMIT_DIAGNOSTICS_TASK;
    if (!module || module != source->moduleHandle || module->diagnostics != diagnostics) {
        return cudlaErrorInvalidModule;
    }
    return cudlaSuccess;
}

static int check_task(const submission *given, const cudlaTask *source) {
    bool diagnostics = given->flags & CUDLA_SUBMIT_DIAGNOSTICS_TASK;
    int status = check_module(given, source);
    if (status != cudlaSuccess) {
        return status;
    }
    if (!source->outputTensor || !source->inputTensor != diagnostics) {
        return cudlaErrorUnsupportedOperation;
    }
    const dla_header *header = &given->device->module->loadable.header;
    uint32_t outputs = source->numOutputTensors;
    if (source->numInputTensors != header->input_count ||
        (outputs != header->output_count && outputs != header->output_count + header->statistics_count)) {
        return cudlaErrorInvalidParam;
    }
    return cudlaSuccess;
}

static int bind_tensor(dla_task *task, const uint64_t *address, uint32_t forbidden, uint32_t needed) {
    const dla_tensor *tensor = &task->run->loadable->tensors[task->region_count];
    dla_region *region = region_at(task->device, address);
    if (!region || region->bytes < tensor->size || region->flags & forbidden ||
        (region->flags & needed) != needed) {
        return cudlaErrorInvalidAddress;
    }
    task->run->memory[task->region_count] = region->memory;
    task->regions[task->region_count++] = region;
    return cudlaSuccess;
}

static int bind_tensors(dla_task *task, const cudlaTask *source) {
    const dla_header *header = &task->run->loadable->header;
    int status = cudlaSuccess;
    for (uint32_t i = 0; i < header->input_count && status == cudlaSuccess; i++) {
        status = bind_tensor(task, source->inputTensor[i], 0, 0);
    }
    for (uint32_t i = 0; i < source->numOutputTensors && status == cudlaSuccess; i++) {
        status = bind_tensor(task, source->outputTensor[i], CUDLA_READ_ONLY_PERM,
                             i < header->output_count ? 0 : CUDLA_TASK_STATISTICS);
    }
    task->run->statistics = source->numOutputTensors > header->output_count;
    return status;
}

static void free_task(dla_task *task) {
    if (task) {
        free_waits(task);
        free(task->run);
    }
    free(task);
}

static dla_task *new_task(const submission *given) {
    dla_task *task = calloc(1, sizeof *task);
    dla_run *run = calloc(1, sizeof *run);
    if (!task || !run) {
        free(task);
        free(run);
        return NULL;
    }
    task->device = given->device;
    task->stream = given->stream;
    task->run = run;
    run->gpu = given->device->gpu;
    run->number = given->device->number;
    run->skip = given->flags & CUDLA_SUBMIT_NOOP;
    run->loadable = &given->device->module->loadable;
    return task;
}

/* Makes the task for one place of the list. */
static int make_task(const submission *given, uint32_t place, dla_task **made) {
    const cudlaTask *source = &given->list[place];
    int status = check_task(given, source);
    if (status != cudlaSuccess) {
        return status;
    }
    dla_task *task = *made = new_task(given);
    if (!task) {
        return cudlaErrorOutOfResources;
    }
    status = bind_tensors(task, source);
    return status == cudlaSuccess ? bind_events(task, source) : status;
}

static void queue_task(dla_task *task) {
    task->serial = task->run->serial = ++serials;
    for (uint32_t i = 0; i < task->region_count; i++) {
        task->regions[i]->users++;
    }
    if (task->signals) {
        task->signals->users++;
        sim_sci_promise(task->signals->semaphore, task->end);
    }
    task->device->unfinished++;
    dla_task **link = &tasks;
    while (*link) {
        link = &(*link)->next;
    }
    *link = task;
}

static int submit_tasks(const submission *given) {
    dla_task **made = calloc(given->count, sizeof *made);
    int status = made ? cudlaSuccess : cudlaErrorOutOfResources;
    for (uint32_t i = 0; i < given->count && status == cudlaSuccess; i++) {
        status = make_task(given, i, &made[i]);
    }
    for (uint32_t i = 0; made && i < given->count; i++) {
        if (status == cudlaSuccess) {
            queue_task(made[i]);
        } else {
            free_task(made[i]);
        }
    }
    free(made);
    tell_change();
    return status;
}

/* Without libcuda's part of external_work.h, a stream cannot wait for its tasks later, so the submission waits. */
static void wait_here(const submission *given) {
    while (!sim_cuda_set_external_wait && !given->device->standalone && is_stream_busy(given->stream, serials + 1)) {
        wait_for_change();
    }
}

static int submit(const submission *given) {
    int status = check_submission(given);
    if (status != cudlaSuccess) {
        return status;
    }
    status = submit_tasks(given);
    if (status == cudlaSuccess) {
        wait_here(given);
    }
    return status;
}

SIM_EXPORT int cudlaSubmitTask(cudlaDevHandle handle, const cudlaTask *list, uint32_t count, void *stream,
                               uint32_t flags) {
    int status;
    sim_trace("cudlaSubmitTask", "tasks=%u stream=%d flags=%u", count, stream != NULL, flags);
    if (is_refused(__func__, gpu_of(handle), &status)) {
        return status;
    }
    if (sim_cuda_finish) {
        sim_cuda_finish(stream); /* a task begins after all work that is already in its stream */
    }
    take_lock();
    submission given = {device_of(handle), list, count, stream, flags};
    status = submit(&given);
    give_lock();
    return status;
}
