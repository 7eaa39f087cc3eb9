/*
 * The simulated NVML: events. Only Xid errors are simulated.
 */
#include "nvml.h"

#include <pthread.h>
#include <stdlib.h>

#define WAIT_STEP_MS 50

struct nvml_event_set {
    bool watched[SIM_DEVICES_MOST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The events delivered in this process; guarded by `lock`. An Xid waits until a set that watches its device asks. */
static uint64_t next_xid[SIM_DEVICES_MOST];
static bool told_lost[SIM_DEVICES_MOST];

ANSWER_NUMBER(nvmlDeviceGetSupportedEventTypes, uint64_t, asked.gpu->integrated ? 0 : NVML_EVENT_TYPES_ALL)

SIM_EXPORT int nvmlEventSetCreate(nvmlEventSet_t *out) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *out = calloc(1, sizeof **out);
    return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

SIM_EXPORT int nvmlEventSetFree(nvmlEventSet_t set) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status == NVML_SUCCESS) {
        free(set);
    }
    return status;
}

SIM_EXPORT int nvmlDeviceRegisterEvents(nvmlDevice_t handle, uint64_t types, nvmlEventSet_t set) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status == NVML_SUCCESS && types & NVML_EVENT_XID_CRITICAL_ERROR) {
        set->watched[asked.gpu->index] = true;
    }
    return status;
}

/* Takes the oldest event that a set watches and that was not delivered. The caller holds the lock. */
static bool take_event(nvmlEventSet_t set, sim_xid *event) {
    uint64_t count = sim_xid_count();
    for (uint64_t number = 0; number < count; number++) {
        if (sim_wait_xid(number, 0, event) && event->device >= 0 && set->watched[event->device] &&
            number >= next_xid[event->device]) {
            next_xid[event->device] = number + 1;
            told_lost[event->device] |= event->xid == 79;
            return true;
        }
    }
    for (int gpu = 0; gpu < sim_machine()->device_count; gpu++) {
        if (set->watched[gpu] && sim_is_lost(gpu) && !told_lost[gpu]) {
            *event = (sim_xid){gpu, 79}; /* Xid 79: the GPU has fallen off the bus */
            return told_lost[gpu] = true;
        }
    }
    return false;
}

static bool wait_for_event(nvmlEventSet_t set, unsigned timeout_ms, sim_xid *event) {
    for (uint64_t until_us = monotonic_us() + UINT64_C(1000) * timeout_ms;;) {
        uint64_t seen = sim_xid_count();
        pthread_mutex_lock(&lock);
        bool taken = take_event(set, event);
        pthread_mutex_unlock(&lock);
        uint64_t now_us = monotonic_us();
        if (taken || now_us >= until_us) {
            return taken;
        }
        unsigned left_ms = (unsigned)((until_us - now_us + 999) / 1000);
        sim_xid any;
        sim_wait_xid(seen, least(left_ms, WAIT_STEP_MS), &any); /* a lost GPU raises no event: check now and then */
    }
}

SIM_EXPORT int nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout_ms) {
    sim_xid event;
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (!wait_for_event(set, timeout_ms, &event)) {
        return NVML_ERROR_TIMEOUT;
    }
    *out = (nvmlEventData_t){handle_of(event.device, SIM_UNKNOWN), NVML_EVENT_XID_CRITICAL_ERROR, event.xid,
                             NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    return NVML_SUCCESS;
}
