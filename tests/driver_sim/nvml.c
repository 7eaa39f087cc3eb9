/*
 * libnvidia-ml.so.1 of the driver simulator: the library, handles, and the beginning of every function. See nvml.h.
 */
#define _GNU_SOURCE
#include "nvml.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/*
 * Handles
 */

struct nvml_device_handle {
    int gpu;
    int slice; /* SIM_UNKNOWN: the whole GPU */
};

static struct nvml_device_handle handles[SIM_DEVICES_MOST][SIM_SLICES_MOST + 1];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int times_opened; /* guarded by `lock` */

static bool is_open(void) {
    pthread_mutex_lock(&lock);
    bool open = times_opened > 0;
    pthread_mutex_unlock(&lock);
    return open;
}

nvmlDevice_t handle_of(int gpu, int slice) {
    struct nvml_device_handle *handle = &handles[gpu][slice + 1];
    pthread_mutex_lock(&lock);
    *handle = (struct nvml_device_handle){gpu, slice};
    pthread_mutex_unlock(&lock);
    return handle;
}

static bool find_subject(nvmlDevice_t handle, subject *found) {
    for (int gpu = 0; gpu < sim_machine()->device_count; gpu++) {
        for (int slice = SIM_UNKNOWN; slice < sim_gpu_at(gpu)->slice_count; slice++) {
            if (handle == &handles[gpu][slice + 1]) {
                found->gpu = sim_gpu_at(gpu);
                found->slice = slice == SIM_UNKNOWN ? NULL : &found->gpu->slices[slice];
                return true;
            }
        }
    }
    return false;
}

int slice_number(const subject *asked) {
    return asked->slice ? (int)(asked->slice - asked->gpu->slices) : SIM_UNKNOWN;
}

/*
 * Kinds of devices, and the functions that each kind refuses
 */

int architecture_of(const sim_device *gpu) {
    static const struct {
        const char *name;
        int number;
    } known[] = {{"kepler", 2}, {"maxwell", 3}, {"pascal", 4}, {"volta", 5},     {"turing", TURING},
                 {"ampere", 7}, {"ga100", 7},   {"ga10x", 7},  {"orin", AMPERE}, {"ada", ADA},
                 {"hopper", 9}, {"thor", 10},   {"rubin", 13}, {"blackwell", 10}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strcasecmp(known[i].name, gpu->architecture)) {
            return known[i].number;
        }
    }
    return -1; /* NVML_DEVICE_ARCH_UNKNOWN */
}

bool is_guest(const sim_device *gpu) {
    return gpu->virtualization == 2;
}

bool is_host(const sim_device *gpu) {
    return gpu->virtualization == 3;
}

bool is_geforce(const sim_device *gpu) {
    return strcasestr(gpu->name, "geforce") != NULL;
}

typedef enum refuser {
    BY_GUEST = 1,    /* vGPU Management SDK guide, 3.3.2, and what a guest lacks: MIG, the board's health */
    BY_GEFORCE = 2,  /* a consumer GPU reports less */
    BY_CUT = 4,      /* NVML API Reference Manual: no utilisation rates for a GPU in MIG mode */
    BY_ALL = 8,      /* GPU operation modes (Kepler), bridge chips, auto boost, Windows' driver models */
    NOT_BY_IGPU = 16 /* all functions that a Tegra's NVML answers (documented, not measured) */
} refuser;

static const struct {
    const char *function;
    unsigned refusers;
} refusals[] = {
    {"nvmlDeviceGetSerial", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetBoardPartNumber", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetInforomImageVersion", BY_GUEST},
    {"nvmlDeviceGetInforomVersion", BY_GUEST},
    {"nvmlDeviceGetGpuOperationMode", BY_GUEST | BY_ALL},
    {"nvmlDeviceGetMaxPcieLinkGeneration", BY_GUEST},
    {"nvmlDeviceGetCurrPcieLinkGeneration", BY_GUEST},
    {"nvmlDeviceGetMaxPcieLinkWidth", BY_GUEST},
    {"nvmlDeviceGetCurrPcieLinkWidth", BY_GUEST},
    {"nvmlDeviceGetBridgeChipInfo", BY_GUEST | BY_ALL},
    {"nvmlDeviceGetPcieReplayCounter", BY_GUEST},
    {"nvmlDeviceGetPcieThroughput", BY_GUEST},
    {"nvmlDeviceGetFanSpeed", BY_GUEST},
    {"nvmlDeviceGetSupportedClocksThrottleReasons", BY_GUEST},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", BY_GUEST},
    {"nvmlDeviceGetSupportedClocksEventReasons", BY_GUEST},
    {"nvmlDeviceGetCurrentClocksEventReasons", BY_GUEST},
    {"nvmlDeviceGetTemperature", BY_GUEST},
    {"nvmlDeviceGetTemperatureV", BY_GUEST},
    {"nvmlDeviceGetTemperatureThreshold", BY_GUEST},
    {"nvmlDeviceGetPowerManagementMode", BY_GUEST},
    {"nvmlDeviceGetPowerUsage", BY_GUEST},
    {"nvmlDeviceGetPowerManagementLimit", BY_GUEST},
    {"nvmlDeviceGetPowerManagementDefaultLimit", BY_GUEST},
    {"nvmlDeviceGetEnforcedPowerLimit", BY_GUEST},
    {"nvmlDeviceGetPowerManagementLimitConstraints", BY_GUEST},
    {"nvmlDeviceGetEccMode", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetMemoryErrorCounter", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetTotalEccErrors", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetRetiredPages", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetRetiredPagesPendingStatus", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetApplicationsClock", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetDefaultApplicationsClock", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetMaxClockInfo", BY_GUEST},
    {"nvmlDeviceGetAutoBoostedClocksEnabled", BY_GUEST | BY_ALL},
    {"nvmlDeviceGetDriverModel", BY_ALL},
    {"nvmlDeviceGetMigMode", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetGpuInstanceProfileInfoV", BY_GUEST},
    {"nvmlDeviceGetGpuInstanceProfileInfo", BY_GUEST},
    {"nvmlDeviceGetRemappedRows", BY_GUEST | BY_GEFORCE},
    {"nvmlDeviceGetTotalEnergyConsumption", BY_GUEST},
    {"nvmlDeviceGetUtilizationRates", BY_CUT | NOT_BY_IGPU},
    {"nvmlDeviceGetEncoderUtilization", BY_CUT},
    {"nvmlDeviceGetDecoderUtilization", BY_CUT},
    {"nvmlDeviceGetJpgUtilization", BY_CUT},
    {"nvmlDeviceGetOfaUtilization", BY_CUT},
    {"nvmlDeviceGetName", NOT_BY_IGPU},
    {"nvmlDeviceGetUUID", NOT_BY_IGPU},
    {"nvmlDeviceGetPciInfo", NOT_BY_IGPU},
    {"nvmlDeviceGetIndex", NOT_BY_IGPU},
    {"nvmlDeviceGetArchitecture", NOT_BY_IGPU},
    {"nvmlDeviceGetCudaComputeCapability", NOT_BY_IGPU},
    {"nvmlDeviceGetBusType", NOT_BY_IGPU},
    {"nvmlDeviceGetVirtualizationMode", NOT_BY_IGPU},
};

static bool refuses(const sim_device *gpu, const char *function) {
    unsigned by = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (!strcmp(refusals[i].function, function)) {
            by = refusals[i].refusers;
        }
    }
    return (by & BY_ALL) || (by & BY_GUEST && is_guest(gpu)) || (by & BY_GEFORCE && is_geforce(gpu)) ||
           (by & BY_CUT && gpu->mig_enabled) || (gpu->integrated && !(by & NOT_BY_IGPU));
}

/*
 * The beginning of every function
 */

/* Writes a function's name without its version. */
static void strip_version(const char *function, char *plain, size_t bytes) {
    snprintf(plain, bytes, "%s", function);
    size_t length = strlen(plain);
    if (length > 3 && plain[length - 3] == '_' && plain[length - 2] == 'v' &&
        isdigit((unsigned char)plain[length - 1])) {
        plain[length - 3] = '\0';
    }
}

/* Executes the scenario's faults for a call: NVML_SUCCESS, or the status that the function must return. */
static int enter(const char *function, int gpu) {
    char plain[96];
    int status;
    strip_version(function, plain, sizeof plain);
    if (sim_enter(plain, gpu, &status) == SIM_STATUS) {
        return status;
    }
    if (strcmp(plain, function) && sim_enter(function, gpu, &status) == SIM_STATUS) {
        return status;
    }
    return NVML_SUCCESS;
}

int enter_open(const char *function, int gpu) {
    int status = enter(function, gpu);
    if (status != NVML_SUCCESS) {
        return status;
    }
    return is_open() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

/* Begins a query of a GPU or a slice. */
int ask(const char *function, nvmlDevice_t handle, subject *asked) {
    char plain[96];
    bool known = find_subject(handle, asked);
    int status = enter_open(function, known ? asked->gpu->index : SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (!known) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    strip_version(function, plain, sizeof plain);
    return !asked->slice && refuses(asked->gpu, plain) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* Begins a query that only a GPU answers. */
int ask_gpu(const char *function, nvmlDevice_t handle, subject *asked) {
    int status = ask(function, handle, asked);
    return status == NVML_SUCCESS && asked->slice ? NVML_ERROR_NOT_SUPPORTED : status;
}

/* Begins a query that only a slice answers. */
int ask_slice(const char *function, nvmlDevice_t handle, subject *asked) {
    int status = ask(function, handle, asked);
    return status == NVML_SUCCESS && !asked->slice ? NVML_ERROR_INVALID_ARGUMENT : status;
}

int put_text(char *out, unsigned bytes, const char *text) {
    if (!out) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (strlen(text) >= bytes) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    strcpy(out, text);
    return NVML_SUCCESS;
}

int put_list(const void *elements, size_t element_bytes, unsigned count, unsigned *room, void *out) {
    if (!room) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    unsigned had = out ? *room : 0;
    *room = count;
    if (had < count) {
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    if (count) {
        memcpy(out, elements, count * element_bytes);
    }
    return NVML_SUCCESS;
}

uint64_t monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

unsigned least(unsigned one, unsigned other) {
    return one < other ? one : other;
}

/*
 * The library
 */

static int open_library(void) {
    int status = enter("nvmlInit", SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    if (!sim_machine()->device_count) {
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    pthread_mutex_lock(&lock);
    times_opened++;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlInit(void) {
    return open_library();
}

SIM_EXPORT int nvmlInit_v2(void) {
    return open_library();
}

SIM_EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return open_library();
}

SIM_EXPORT int nvmlShutdown(void) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    pthread_mutex_lock(&lock);
    times_opened--;
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

SIM_EXPORT const char *nvmlErrorString(int status) {
    static const char *const texts[] = {"Success",
                                        "Uninitialized",
                                        "Invalid Argument",
                                        "Not Supported",
                                        "Insufficient Permissions",
                                        "Already Initialized",
                                        "Not Found",
                                        "Insufficient Size",
                                        "Insufficient External Power",
                                        "Driver Not Loaded",
                                        "Timeout",
                                        "Interrupt Request Issue",
                                        "NVML Shared Library Not Found",
                                        "Function Not Found",
                                        "Corrupted infoROM",
                                        "GPU is lost",
                                        "GPU requires reset",
                                        "GPU access blocked by the operating system",
                                        "Driver/library version mismatch"};
    return status >= 0 && status < (int)(sizeof texts / sizeof *texts) ? texts[status] : "Unknown Error";
}

SIM_EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned bytes) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    return status == NVML_SUCCESS ? put_text(out, bytes, sim_machine()->driver) : status;
}

SIM_EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned bytes) {
    char version[SIM_TEXT_BYTES + 16];
    int status = enter_open(__func__, SIM_NO_DEVICE);
    snprintf(version, sizeof version, "%d.%s", sim_machine()->cuda_version / 1000, sim_machine()->driver);
    return status == NVML_SUCCESS ? put_text(out, bytes, version) : status;
}

static int cuda_version(const char *function, int *version) {
    int status = enter_open(function, SIM_NO_DEVICE);
    if (status == NVML_SUCCESS) {
        *version = sim_machine()->cuda_version;
    }
    return status;
}

SIM_EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
    return cuda_version(__func__, version);
}

SIM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return cuda_version(__func__, version);
}

/*
 * Finding devices
 */

SIM_EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status == NVML_SUCCESS) {
        *count = (unsigned)sim_machine()->device_count;
    }
    return status;
}

SIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle) {
    bool known = index < (unsigned)sim_machine()->device_count;
    int status = enter_open(__func__, known ? (int)index : SIM_NO_DEVICE);
    if (status == NVML_ERROR_GPU_IS_LOST && sim_is_lost((int)index)) {
        status = NVML_SUCCESS; /* the handle is given; later queries of it report the loss */
    }
    if (status == NVML_SUCCESS && !known) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    if (status == NVML_SUCCESS) {
        *handle = handle_of((int)index, SIM_UNKNOWN);
    }
    return status;
}

static bool is_same_bus(const char *one, const char *other) {
    while (*one == '0') {
        one++;
    }
    while (*other == '0') {
        other++;
    }
    return !strcasecmp(one, other);
}

SIM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    for (int i = 0; status == NVML_SUCCESS && i < sim_machine()->device_count; i++) {
        if (is_same_bus(sim_gpu_at(i)->pci_bus_id, bus_id)) {
            *handle = handle_of(i, SIM_UNKNOWN);
            return NVML_SUCCESS;
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}

static int slice_with(const sim_device *gpu, const char *uuid) {
    for (int i = 0; i < gpu->slice_count; i++) {
        if (!strcmp(gpu->slices[i].uuid, uuid)) {
            return i;
        }
    }
    return SIM_UNKNOWN;
}

SIM_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    for (int i = 0; status == NVML_SUCCESS && i < sim_machine()->device_count; i++) {
        int slice = slice_with(sim_gpu_at(i), uuid);
        if (slice != SIM_UNKNOWN || !strcmp(sim_gpu_at(i)->uuid, uuid)) {
            *handle = handle_of(i, slice);
            return NVML_SUCCESS;
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}
