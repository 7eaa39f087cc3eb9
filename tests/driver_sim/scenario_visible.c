/*
 * The devices of the scenario that CUDA sees with CUDA_VISIBLE_DEVICES (CUDA C++ Programming Guide, "CUDA Environment
 * Variables"; Multi-Instance GPU User Guide, "CUDA Device Enumeration").
 *
 * An entry is an index, a GPU's UUID or a beginning of it that no other GPU shares, a MIG device's whole UUID, or
 * "MIG-<the GPU's UUID>/<GPU instance>/<compute instance>" as drivers before 470 write it. The first entry that names
 * no device ends the list. To a process, CUDA shows only one MIG device, and no GPU beside it.
 */
#define _GNU_SOURCE
#include "scenario.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BYTES 2048

static struct {
    int count;
    sim_device devices[SIM_DEVICES_MOST];
} visible; /* written once, under visible_once */

static pthread_once_t visible_once = PTHREAD_ONCE_INIT;

int sim_slice_account(const sim_device *gpu, int slice) {
    int first = 0;
    while (gpu->slices[first].gpu_instance != gpu->slices[slice].gpu_instance) {
        first++;
    }
    return SIM_DEVICES_MOST + gpu->index * SIM_SLICES_MOST + first;
}

static sim_device device_of_slice(const sim_device *gpu, int number) {
    const sim_slice *slice = &gpu->slices[number];
    sim_device device = *gpu;
    device.slice = number;
    device.account = sim_slice_account(gpu, number);
    device.memory_bytes = slice->memory_bytes;
    memcpy(device.engines, slice->engines, sizeof device.engines);
    memcpy(device.uuid, slice->uuid, sizeof device.uuid);
    int plain = (int)(strstr(gpu->name, " (simulated)") - gpu->name);
    snprintf(device.name, sizeof device.name, "%.*s MIG %.24s (simulated)", plain < 48 ? plain : 48, gpu->name,
             slice->name);
    return device;
}

/* Adds a whole GPU, or the first MIG device of a GPU in MIG mode; adds nothing if that GPU has no MIG device. */
static void show_gpu(const sim_device *gpu) {
    if (!gpu->mig_enabled) {
        visible.devices[visible.count++] = *gpu;
    } else if (gpu->slice_count > 0) {
        visible.devices[visible.count++] = device_of_slice(gpu, 0);
    }
}

static bool is_slice(const sim_device *gpu, const sim_slice *slice, const char *token) {
    char numbered[2 * SIM_TEXT_BYTES];
    snprintf(numbered, sizeof numbered, "MIG-%s/%d/%d", gpu->uuid, slice->gpu_instance, slice->compute_instance);
    return strcmp(slice->uuid, token) == 0 || strcmp(numbered, token) == 0;
}

static bool show_slice(const char *token) {
    for (int index = 0; index < sim_machine()->device_count; index++) {
        const sim_device *gpu = sim_gpu_at(index);
        for (int number = 0; number < gpu->slice_count; number++) {
            if (is_slice(gpu, &gpu->slices[number], token)) {
                visible.devices[visible.count++] = device_of_slice(gpu, number);
                return true;
            }
        }
    }
    return false;
}

/* The GPU that an entry names; NULL if the entry fits no GPU, or more than one. */
static const sim_device *find_gpu(const char *token) {
    char *end = NULL;
    long index = strtol(token, &end, 10);
    if (isdigit((unsigned char)token[0])) {
        return *end == '\0' ? sim_gpu_at((int)index) : NULL;
    }
    const sim_device *found = NULL;
    for (int each = 0; strncmp(token, "GPU-", 4) == 0 && each < sim_machine()->device_count; each++) {
        if (strncmp(sim_gpu_at(each)->uuid, token, strlen(token)) == 0) {
            if (found != NULL) {
                return NULL;
            }
            found = sim_gpu_at(each);
        }
    }
    return found;
}

/* Adds the device that an entry names; false if it names none. */
static bool show_entry(const char *token) {
    if (strncmp(token, "MIG-", 4) == 0) {
        return show_slice(token);
    }
    const sim_device *gpu = find_gpu(token);
    if (gpu != NULL) {
        show_gpu(gpu);
    }
    return gpu != NULL;
}

static void show_list(const char *list) {
    char copy[LIST_BYTES];
    snprintf(copy, sizeof copy, "%s", list);
    char *rest = NULL;
    for (char *token = strtok_r(copy, ", ", &rest); token != NULL; token = strtok_r(NULL, ", ", &rest)) {
        if (visible.count == SIM_DEVICES_MOST || !show_entry(token)) {
            return;
        }
    }
}

static void keep_one_slice(void) {
    for (int number = 0; number < visible.count; number++) {
        if (visible.devices[number].slice != SIM_UNKNOWN) {
            visible.devices[0] = visible.devices[number];
            visible.count = 1;
        }
    }
}

static void load_visible(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    for (int index = 0; list == NULL && index < sim_machine()->device_count; index++) {
        show_gpu(sim_gpu_at(index));
    }
    if (list != NULL) {
        show_list(list);
    }
    keep_one_slice();
}

int sim_visible_count(void) {
    pthread_once(&visible_once, load_visible);
    return visible.count;
}

const sim_device *sim_device_at(int visible_ordinal) {
    return visible_ordinal >= 0 && visible_ordinal < sim_visible_count() ? &visible.devices[visible_ordinal] : NULL;
}
