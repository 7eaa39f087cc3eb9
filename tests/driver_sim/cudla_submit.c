/*
 * The simulated cuDLA: tasks into the queue.
 *
 * A list of tasks is checked as a whole before any of it is put into the queue. All with the lock.
 */
#define _GNU_SOURCE
#include "cudla.h"

#include <stdlib.h>
#include <string.h>

typedef struct submission {
    dla_device *device;
    const cudlaTask *list;
    uint32_t count;
    void *stream;
    uint32_t flags;
} submission;

static bool is_event_only(const submission *given) {
    return given->device->standalone && !(given->flags & CUDLA_SUBMIT_DIAGNOSTICS_TASK) &&
           !given->list[0].inputTensor && !given->list[0].outputTensor;
}

static int check_submission(const submission *given) {
    const uint32_t known = CUDLA_SUBMIT_NOOP | CUDLA_SUBMIT_SKIP_LOCK_ACQUIRE | CUDLA_SUBMIT_DIAGNOSTICS_TASK;
    if (!given->device) {
        return cudlaErrorInvalidDevice;
    }
    if (given->device->error != cudlaSuccess) {
        return given->device->error;
    }
    if (!given->list || !given->count || given->flags & ~known || (given->device->standalone && given->stream)) {
        return cudlaErrorInvalidParam;
    }
    if (is_event_only(given) && given->count != 1) {
        return cudlaErrorUnsupportedOperation;
    }
    return cudlaSuccess;
}

static bool has_goal(const fence_goals *goals, fence_goal goal) {
    for (uint32_t i = 0; i < goals->count; i++) {
        if (goals->goals[i].object == goal.object && goals->goals[i].value == goal.value) {
            return true;
        }
    }
    return false;
}

static bool is_imported(const dla_device *device, uint64_t sync_object) {
    const dla_region *region = device->regions;
    while (region && region->sync_object != sync_object) {
        region = region->next;
    }
    return region != NULL;
}

static int add_goals(fence_goals *goals, const fence_goals *more) {
    if (goals->count + more->count > FENCES_MOST) {
        return cudlaErrorUnsupportedOperation;
    }
    memcpy(goals->goals + goals->count, more->goals, more->count * sizeof *more->goals);
    goals->count += more->count;
    return cudlaSuccess;
}

/* Reads what a task waits for. That there are no duplicates is the caller's to see to (5.4); here they are refused. */
static int read_waits(const dla_device *device, const cudlaWaitEvents *events, fence_goals *goals) {
    for (uint32_t i = 0; events && i < events->numEvents; i++) {
        fence_goal goal;
        if (!events->preFences || !events->preFences[i].fence) {
            return cudlaErrorInvalidParam;
        }
        if (events->preFences[i].type != CUDLA_NVSCISYNC_FENCE || goals->count == FENCES_MOST) {
            return cudlaErrorUnsupportedOperation;
        }
        if (!read_fence(events->preFences[i].fence, &goal) || !is_imported(device, goal.object)) {
            return cudlaErrorNvSci;
        }
        if (has_goal(goals, goal)) {
            return cudlaErrorInvalidParam;
        }
        goals->goals[goals->count++] = goal;
    }
    return cudlaSuccess;
}

static int check_signals(const dla_device *device, const cudlaSignalEvents *events) {
    if (!events) {
        return cudlaSuccess;
    }
    if (events->numEvents > FENCES_MOST) {
        return cudlaErrorUnsupportedOperation;
    }
    if (events->numEvents && (!events->devPtrs || !events->eofFences)) {
        return cudlaErrorInvalidParam;
    }
    for (uint32_t i = 0; i < events->numEvents; i++) {
        const dla_region *region = region_at(device, events->devPtrs[i]);
        int type = events->eofFences[i].type;
        if (!region || !region->sync_object) {
            return cudlaErrorInvalidAddress;
        }
        if (type != CUDLA_NVSCISYNC_FENCE && type != CUDLA_NVSCISYNC_FENCE_SOF) {
            return cudlaErrorUnsupportedOperation;
        }
    }
    return cudlaSuccess;
}

/* Promises the signals of a checked list, and gives their fences to the caller. */
static void promise_signals(const dla_device *device, cudlaSignalEvents *events, fence_goals *at_start,
                            fence_goals *at_end) {
    for (uint32_t i = 0; events && i < events->numEvents; i++) {
        const CudlaFence *fence = &events->eofFences[i];
        nvsci_object *object = nvsci_numbered(region_at(device, events->devPtrs[i])->sync_object);
        if (!object) {
            continue; /* freed by the program: nobody can wait for it */
        }
        fence_goals *goals = fence->type == CUDLA_NVSCISYNC_FENCE_SOF ? at_start : at_end;
        fence_goal goal = {object->number, ++object->promised};
        goals->goals[goals->count++] = goal;
        if (fence->fence) {
            write_fence(fence->fence, goal);
        }
    }
}

/* "An enqueue of wait and signal events that must be considered for subsequent task submission." */
static int submit_events(const submission *given) {
    dla_device *device = given->device;
    const cudlaTask *source = given->list;
    fence_goals waits = {0};
    int status = read_waits(device, source->waitEvents, &waits);
    if (status == cudlaSuccess) {
        status = check_signals(device, source->signalEvents);
    }
    if (status != cudlaSuccess) {
        return status;
    }
    if (source->waitEvents) {
        device->waits_to_come = waits;
    }
    if (source->signalEvents) {
        device->start_to_come.count = device->end_to_come.count = 0;
        promise_signals(device, source->signalEvents, &device->start_to_come, &device->end_to_come);
    }
    return cudlaSuccess;
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
    if (!given->device->standalone && (source->waitEvents || source->signalEvents)) {
        return cudlaErrorUnsupportedOperation;
    }
    const dla_header *header = &given->device->module->loadable.header;
    uint32_t outputs = source->numOutputTensors;
    if (source->numInputTensors != header->input_count ||
        (outputs != header->output_count && outputs != header->output_count + header->statistics_count)) {
        return cudlaErrorInvalidParam;
    }
    return check_signals(given->device, source->signalEvents);
}

static int bind_tensor(dla_task *task, const uint64_t *address, uint32_t forbidden, uint32_t needed) {
    const dla_tensor *tensor = &task->run->loadable->tensors[task->region_count];
    dla_region *region = region_at(task->device, address);
    if (!region || region->sync_object || region->bytes < tensor->size || region->flags & forbidden ||
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

/* Makes the task at a place of the list; the first waits for what event-only submissions left, too. */
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
    if (status == cudlaSuccess && !place) {
        status = add_goals(&task->waits, &given->device->waits_to_come);
    }
    if (status == cudlaSuccess) {
        status = read_waits(given->device, source->waitEvents, &task->waits);
    }
    return status;
}

static void queue_task(dla_task *task, const cudlaTask *source) {
    promise_signals(task->device, source->signalEvents, &task->at_start, &task->at_end);
    task->serial = task->run->serial = ++serials;
    for (uint32_t i = 0; i < task->region_count; i++) {
        task->regions[i]->users++;
    }
    task->device->unfinished++;
    dla_task **link = &tasks;
    while (*link) {
        link = &(*link)->next;
    }
    *link = task;
}

/* The last task of a list signals what event-only submissions asked for, too. */
static int take_stored_signals(const submission *given, dla_task *last) {
    dla_device *device = given->device;
    const cudlaSignalEvents *own = given->list[given->count - 1].signalEvents;
    uint32_t stored = device->start_to_come.count + device->end_to_come.count;
    if (stored + (own ? own->numEvents : 0) > FENCES_MOST) {
        return cudlaErrorUnsupportedOperation;
    }
    add_goals(&last->at_start, &device->start_to_come);
    add_goals(&last->at_end, &device->end_to_come);
    device->waits_to_come.count = device->start_to_come.count = device->end_to_come.count = 0;
    return cudlaSuccess;
}

static int submit_tasks(const submission *given) {
    dla_task **made = calloc(given->count, sizeof *made);
    int status = made ? cudlaSuccess : cudlaErrorOutOfResources;
    for (uint32_t i = 0; i < given->count && status == cudlaSuccess; i++) {
        status = make_task(given, i, &made[i]);
    }
    if (status == cudlaSuccess) {
        status = take_stored_signals(given, made[given->count - 1]);
    }
    for (uint32_t i = 0; made && i < given->count; i++) {
        if (status == cudlaSuccess) {
            queue_task(made[i], &given->list[i]);
        } else {
            free_task(made[i]);
        }
    }
    free(made);
    tell_change();
    return status;
}

/* Without libcuda's part of external_work.h a stream cannot wait for its tasks later, so the submission does. */
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
    if (is_event_only(given)) {
        return submit_events(given);
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
    take_lock();
    submission given = {device_of(handle), list, count, stream, flags};
    status = submit(&given);
    give_lock();
    return status;
}
