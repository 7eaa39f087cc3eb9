/*
 * The simulated NVML: the kinds of vGPUs that a host supports (vGPU Management SDK guide, 2).
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define TYPES_MOST (SIM_VGPUS_MOST + 8)
#define INVALID_PROFILE 0xffffffffu
#define NVIDIA_VENDOR 0x10deu

/* A kind of vGPU that a device can host. `mig_profile` is "" where it shares the GPU by time. */
typedef struct vgpu_type {
    unsigned id;
    char name[SIM_TEXT_BYTES];
    uint64_t framebuffer_bytes;
    unsigned instances_most;
    char mig_profile[48];
    unsigned profile_id;
} vgpu_type;

typedef struct vgpu_types {
    int count;
    vgpu_type types[TYPES_MOST];
} vgpu_types;

/* A type of a GPU instance is named by it: A100-1-5C is a 1g.5gb, A100-1-5CME a 1g.5gb+me. */
static void profile_of_type(const char *type_name, char *out, size_t bytes) {
    unsigned slices, gib;
    int end = 0;
    *out = '\0';
    for (const char *dash = strchr(type_name, '-'); dash; dash = strchr(dash + 1, '-')) {
        if (sscanf(dash, "-%u-%uC%n", &slices, &gib, &end) == 2 && end &&
            (!strcmp(dash + end, "") || !strcmp(dash + end, "ME"))) {
            snprintf(out, bytes, "%ug.%ugb%s", slices, gib, dash[end] ? "+me" : "");
        }
    }
}

static unsigned profile_id_of(const sim_device *gpu, const char *name) {
    const profile *profiles;
    char each[48];
    int count = profiles_of(gpu, &profiles);
    for (int i = 0; i < count; i++) {
        name_profile(gpu, &profiles[i], each, sizeof each);
        if (!strcmp(each, name)) {
            return profiles[i].kind;
        }
    }
    return INVALID_PROFILE;
}

static vgpu_type running_type(const sim_device *gpu, const sim_vgpu *vgpu) {
    uint64_t framebuffer = vgpu->framebuffer_bytes ? vgpu->framebuffer_bytes : 1;
    uint64_t fit = gpu->memory_bytes / framebuffer;
    vgpu_type type = {vgpu->type_id, "", vgpu->framebuffer_bytes, fit ? (unsigned)fit : 1, "", INVALID_PROFILE};
    memcpy(type.name, vgpu->type_name, sizeof type.name);
    if (gpu->mig_enabled) {
        profile_of_type(vgpu->type_name, type.mig_profile, sizeof type.mig_profile);
        type.profile_id = profile_id_of(gpu, type.mig_profile);
    }
    return type;
}

static void add_running(const sim_device *gpu, vgpu_types *found) {
    for (int i = 0; i < gpu->vgpu_count; i++) {
        int place = 0;
        while (place < found->count && found->types[place].id != gpu->vgpus[i].type_id) {
            place++;
        }
        found->types[place] = running_type(gpu, &gpu->vgpus[i]);
        found->count += place == found->count;
    }
}

static void add_unless_named(vgpu_types *found, int named, const vgpu_type *type) {
    for (int i = 0; i < named; i++) {
        if (!strcmp(found->types[i].name, type->name)) {
            return;
        }
    }
    found->types[found->count++] = *type;
}

static void add_shared(const sim_device *gpu, vgpu_types *found) {
    char model[48];
    int named = found->count;
    unsigned gib = (unsigned)((gpu->memory_bytes + GIB / 2) / GIB);
    model_of(gpu, model, sizeof model);
    for (unsigned share = 8; share; share /= 2) {
        vgpu_type type = {2000 + share, "", gpu->memory_bytes / share, share, "", INVALID_PROFILE};
        snprintf(type.name, sizeof type.name, "NVIDIA %s-%uQ", model, gib / share);
        if (gib >= share) {
            add_unless_named(found, named, &type);
        }
    }
}

static void add_cut(const sim_device *gpu, vgpu_types *found) {
    const profile *profiles;
    char model[48];
    int named = found->count, count = profiles_of(gpu, &profiles);
    model_of(gpu, model, sizeof model);
    for (int i = 0; i < count; i++) {
        const profile *each = &profiles[i];
        vgpu_type type = {3000 + each->kind, "", gpu->memory_bytes * each->eighths / 8,
                          7 / each->slices,  "", each->kind};
        unsigned slices = 0, gib = 0;
        name_profile(gpu, each, type.mig_profile, sizeof type.mig_profile);
        sscanf(type.mig_profile, "%ug.%u", &slices, &gib);
        snprintf(type.name, sizeof type.name, "NVIDIA %s-%u-%uC%s", model, slices, gib, *each->suffix ? "ME" : "");
        add_unless_named(found, named, &type);
    }
}

/* Every type that a host supports: those that run on it, and the usual shares of its memory. */
static vgpu_types types_of(const sim_device *gpu) {
    vgpu_types found = {0};
    add_running(gpu, &found);
    if (gpu->mig_enabled) {
        add_cut(gpu, &found);
    } else {
        add_shared(gpu, &found);
    }
    return found;
}

/* How many GPU instances of a profile no vGPU runs on. */
static int free_instances(const sim_device *gpu, const char *name) {
    int left = 0;
    for (int i = 0; i < gpu->slice_count; i++) {
        left += !strcmp(gpu->slices[i].profile, name);
    }
    for (int i = 0; i < gpu->vgpu_count; i++) {
        char taken[48];
        profile_of_type(gpu->vgpus[i].type_name, taken, sizeof taken);
        left -= !strcmp(taken, name);
    }
    return left;
}

/* Rules of 2.2: with MIG, types of free GPU instances; without, types of the size of what runs, until it is full. */
static bool is_creatable(const sim_device *gpu, const vgpu_types *all, const vgpu_type *type) {
    if (gpu->mig_enabled) {
        return *type->mig_profile && free_instances(gpu, type->mig_profile) > 0;
    }
    if (!gpu->vgpu_count) {
        return true;
    }
    uint64_t size = gpu->vgpus[0].framebuffer_bytes;
    unsigned most = 0;
    for (int i = 0; i < all->count; i++) {
        if (all->types[i].framebuffer_bytes == size && all->types[i].instances_most > most) {
            most = all->types[i].instances_most;
        }
    }
    return type->framebuffer_bytes == size && (unsigned)gpu->vgpu_count < most;
}

int ask_host(const char *function, nvmlDevice_t handle, subject *asked) {
    int status = ask_gpu(function, handle, asked);
    return status == NVML_SUCCESS && !is_host(asked->gpu) ? NVML_ERROR_NOT_SUPPORTED : status;
}

static int list_types(const char *function, nvmlDevice_t handle, bool creatable, unsigned *room, unsigned *out) {
    subject asked;
    int status = ask_host(function, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    vgpu_types all = types_of(asked.gpu);
    unsigned ids[TYPES_MOST], count = 0;
    for (int i = 0; i < all.count; i++) {
        if (!creatable || is_creatable(asked.gpu, &all, &all.types[i])) {
            ids[count++] = all.types[i].id;
        }
    }
    return put_list(ids, sizeof *ids, count, room, out);
}

SIM_EXPORT int nvmlDeviceGetSupportedVgpus(nvmlDevice_t handle, unsigned *room, unsigned *out) {
    return list_types(__func__, handle, false, room, out);
}

SIM_EXPORT int nvmlDeviceGetCreatableVgpus(nvmlDevice_t handle, unsigned *room, unsigned *out) {
    return list_types(__func__, handle, true, room, out);
}

SIM_EXPORT int nvmlDeviceGetActiveVgpus(nvmlDevice_t handle, unsigned *room, unsigned *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    unsigned instances[SIM_VGPUS_MOST];
    for (int i = 0; i < asked.gpu->vgpu_count; i++) {
        instances[i] = asked.gpu->vgpus[i].instance;
    }
    return put_list(instances, sizeof *instances, (unsigned)asked.gpu->vgpu_count, room, out);
}

SIM_EXPORT int nvmlVgpuTypeGetMaxInstances(nvmlDevice_t handle, unsigned id, unsigned *out) {
    subject asked;
    int status = ask_host(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    vgpu_types all = types_of(asked.gpu);
    for (int i = 0; i < all.count; i++) {
        if (all.types[i].id == id) {
            *out = all.types[i].instances_most;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* Opens a question about a type, which any host of the machine may support. */
static int ask_type(const char *function, unsigned id, vgpu_type *found) {
    int status = enter_open(function, SIM_NO_DEVICE);
    for (int gpu = 0; status == NVML_SUCCESS && gpu < sim_machine()->device_count; gpu++) {
        if (!is_host(sim_gpu_at(gpu))) {
            continue;
        }
        vgpu_types all = types_of(sim_gpu_at(gpu));
        for (int i = 0; i < all.count; i++) {
            if (all.types[i].id == id) {
                *found = all.types[i];
                return NVML_SUCCESS;
            }
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : status;
}

#define ANSWER_OF_TYPE(function, type, value)                                                                          \
    SIM_EXPORT int function(unsigned id, type *out) {                                                                  \
        vgpu_type found;                                                                                               \
        int status = ask_type(#function, id, &found);                                                                  \
        if (status == NVML_SUCCESS)                                                                                    \
            *out = (value);                                                                                            \
        return status;                                                                                                 \
    }

/* The class that the last letter of its name stands for. */
static const char *class_of(const vgpu_type *type) {
    size_t length = strlen(type->name);
    switch (length ? type->name[length - 1] : '\0') {
    case 'Q':
        return "Quadro";
    case 'A':
    case 'B':
        return "NVS";
    default:
        return "Compute";
    }
}

static unsigned heads_of(const vgpu_type *type) {
    return !strcmp(class_of(type), "Quadro") ? 4 : 1;
}

ANSWER_OF_TYPE(nvmlVgpuTypeGetFramebufferSize, uint64_t, found.framebuffer_bytes)
ANSWER_OF_TYPE(nvmlVgpuTypeGetNumDisplayHeads, unsigned, heads_of(&found))
ANSWER_OF_TYPE(nvmlVgpuTypeGetFrameRateLimit, unsigned, 60)
ANSWER_OF_TYPE(nvmlVgpuTypeGetGpuInstanceProfileId, unsigned, found.profile_id)

SIM_EXPORT int nvmlVgpuTypeGetClass(unsigned id, char *out, unsigned *bytes) {
    vgpu_type found;
    int status = ask_type(__func__, id, &found);
    return status == NVML_SUCCESS ? put_text(out, *bytes, class_of(&found)) : status;
}

SIM_EXPORT int nvmlVgpuTypeGetName(unsigned id, char *out, unsigned *bytes) {
    vgpu_type found;
    int status = ask_type(__func__, id, &found);
    return status == NVML_SUCCESS ? put_text(out, *bytes, found.name) : status;
}

SIM_EXPORT int nvmlVgpuTypeGetLicense(unsigned id, char *out, unsigned bytes) {
    vgpu_type found;
    int status = ask_type(__func__, id, &found);
    return status == NVML_SUCCESS ? put_text(out, bytes, "Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0") : status;
}

SIM_EXPORT int nvmlVgpuTypeGetDeviceID(unsigned id, uint64_t *device_id, uint64_t *subsystem_id) {
    vgpu_type found;
    int status = ask_type(__func__, id, &found);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *device_id = 0x2235u << 16 | NVIDIA_VENDOR;
    *subsystem_id = 0x14a0u << 16 | NVIDIA_VENDOR;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlVgpuTypeGetResolution(unsigned id, unsigned display, unsigned *width, unsigned *height) {
    vgpu_type found;
    int status = ask_type(__func__, id, &found);
    (void)display;
    if (status != NVML_SUCCESS) {
        return status;
    }
    *width = 4096;
    *height = 2160;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlVgpuTypeGetCapabilities(unsigned id, unsigned capability, unsigned *out) {
    vgpu_type found;
    int status = ask_type(__func__, id, &found);
    if (status == NVML_SUCCESS) {
        *out = capability == NVML_VGPU_CAP_GPUDIRECT;
    }
    return status;
}
