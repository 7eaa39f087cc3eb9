/*
 * The simulated libcuda.so.1: the functions of the CUDA driver that cuda.bindings, cuda.core and PyNvVideoCodec need.
 *
 * Device memory is host memory, streams do their work when somebody waits for them, and kernels cannot run: functions
 * that load or launch kernels return CUDA_ERROR_NOT_SUPPORTED. Addresses are checked against the table of allocations,
 * so that a copy from or to a wrong address fails as on a GPU. This is a simulator for tests; its devices say so in
 * their names.
 */
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_bool cuda_is_initialised;

/*
 * Errors, versions, start
 */

typedef struct error_text {
    int number;
    const char *name;
    const char *text;
} error_text;

#define TEXT(number, name, text) {number, "CUDA_ERROR_" #name, text},
static const error_text ERROR_TEXTS[] = {{SUCCESS, "CUDA_SUCCESS", "no error"}, ERRORS(TEXT)};
#undef TEXT

static const error_text *text_of(int error) {
    for (size_t number = 0; number < sizeof ERROR_TEXTS / sizeof *ERROR_TEXTS; number++) {
        if (ERROR_TEXTS[number].number == error) {
            return &ERROR_TEXTS[number];
        }
    }
    return NULL;
}

SIM_EXPORT int cuGetErrorName(int error, const char **name) {
    const error_text *found = text_of(error);
    *name = found == NULL ? NULL : found->name;
    return found == NULL ? INVALID_VALUE : SUCCESS;
}

SIM_EXPORT int cuGetErrorString(int error, const char **text) {
    const error_text *found = text_of(error);
    *text = found == NULL ? NULL : found->text;
    return found == NULL ? INVALID_VALUE : SUCCESS;
}

SIM_EXPORT int cuDriverGetVersion(int *version) {
    ENTER_ON("cuDriverGetVersion", SIM_NO_DEVICE);
    REFUSE(version == NULL, INVALID_VALUE);
    *version = sim_machine()->cuda_version;
    return SUCCESS;
}

SIM_EXPORT int cuInit(unsigned flags) {
    ENTER_ON("cuInit", SIM_NO_DEVICE);
    REFUSE(flags != 0, INVALID_VALUE);
    REFUSE(sim_visible_count() == 0, NO_DEVICE);
    cuda_is_initialised = true;
    return SUCCESS;
}

/*
 * Devices
 */

SIM_EXPORT int cuDeviceGetCount(int *count) {
    ENTER_READY("cuDeviceGetCount", SIM_NO_DEVICE);
    REFUSE(count == NULL, INVALID_VALUE);
    *count = sim_visible_count();
    return SUCCESS;
}

SIM_EXPORT int cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER_DEVICE("cuDeviceGet", ordinal);
    REFUSE(device == NULL, INVALID_VALUE);
    *device = ordinal;
    return SUCCESS;
}

SIM_EXPORT int cuDeviceGetName(char *name, int bytes, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetName", device);
    REFUSE(name == NULL || bytes <= 0, INVALID_VALUE);
    snprintf(name, (size_t)bytes, "%s", sim_device_at(device)->name);
    return SUCCESS;
}

/* The sixteen bytes of "GPU-00112233-4455-...". */
static void bytes_of_uuid(const char *text, CUuuid *uuid) {
    memset(uuid, 0, sizeof *uuid);
    int digits = 0;
    for (const char *place = text + 4; *place != '\0' && digits < 32; place++) {
        char digit[2] = {*place, '\0'};
        if (*place != '-') {
            int value = (int)strtol(digit, NULL, 16);
            uuid->bytes[digits / 2] = (char)(uuid->bytes[digits / 2] | (digits % 2 == 0 ? value << 4 : value));
            digits++;
        }
    }
}

SIM_EXPORT int cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetUuid", device);
    bytes_of_uuid(sim_gpu_at(sim_device_at(device)->index)->uuid, uuid);
    return SUCCESS;
}

/* This version gives a MIG instance's own UUID. */
SIM_EXPORT int cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetUuid", device);
    bytes_of_uuid(sim_device_at(device)->uuid, uuid);
    return SUCCESS;
}

SIM_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER_DEVICE("cuDeviceTotalMem", device);
    *bytes = sim_device_at(device)->memory_bytes;
    return SUCCESS;
}

SIM_EXPORT int cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER_DEVICE("cuDeviceComputeCapability", device);
    *major = sim_device_at(device)->compute_major;
    *minor = sim_device_at(device)->compute_minor;
    return SUCCESS;
}

SIM_EXPORT int cuDeviceGetPCIBusId(char *text, int bytes, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetPCIBusId", device);
    const char *bus = sim_device_at(device)->pci_bus_id;
    snprintf(text, (size_t)bytes, "%s", strlen(bus) == 16 ? bus + 4 : bus); /* CUDA writes four digits of the domain */
    return SUCCESS;
}

static bool is_at(const sim_device *device, const char *bus) {
    return strcasecmp(device->pci_bus_id, bus) == 0 || strcasecmp(device->pci_bus_id + 4, bus) == 0;
}

SIM_EXPORT int cuDeviceGetByPCIBusId(CUdevice *device, const char *bus) {
    ENTER_READY("cuDeviceGetByPCIBusId", SIM_NO_DEVICE);
    for (int ordinal = 0; ordinal < sim_visible_count(); ordinal++) {
        if (is_at(sim_device_at(ordinal), bus)) {
            *device = ordinal;
            return SUCCESS;
        }
    }
    return INVALID_DEVICE;
}

static int pci_number(const sim_device *device, int which) {
    unsigned numbers[3] = {0};
    sscanf(device->pci_bus_id, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]);
    return (int)numbers[which];
}

/* Attributes that are the same on every simulated device; attributes that are not listed are 0. */
static const struct {
    int attribute;
    int value;
} ATTRIBUTES[] = {
    {1, 1024},       /* threads per block */
    {2, 1024},       /* block dimensions */
    {3, 1024},       {4, 64},
    {5, 2147483647}, /* grid dimensions */
    {6, 65535},      {7, 65535},
    {8, 49152},      /* shared memory per block */
    {9, 65536},      /* constant memory */
    {10, 32},        /* warp */
    {11, 2147483647}, /* largest pitch */
    {12, 65536},     /* registers per block */
    {13, 1500000},   /* clock, kHz */
    {14, 512},       /* texture alignment */
    {15, 1},         /* copies overlap kernels */
    {16, 16},        /* multiprocessors */
    {19, 1},         /* maps host memory */
    {30, 512},       /* surface alignment */
    {31, 1},         /* concurrent kernels */
    {36, 1500000},   /* memory clock, kHz */
    {37, 256},       /* memory bus, bits */
    {39, 2048},      /* threads per multiprocessor */
    {40, 2},         /* copy engines */
    {41, 1},         /* unified addressing */
    {51, 32},        /* texture pitch alignment */
    {78, 1},         /* stream priorities */
    {81, 102400},    /* shared memory per multiprocessor */
    {82, 65536},     /* registers per multiprocessor */
    {83, 1},         /* managed memory */
    {90, 1},         /* compute preemption */
    {91, 1},         /* host pointers of registered memory */
    {99, 1},         /* cuMemHostRegister */
    {106, 16},       /* blocks per multiprocessor */
    {115, 1},        /* memory pools */
    {131, -1},       /* NUMA node */
    {134, 0},        /* NUMA node of the host */
    {144, 1},        /* memory pools of host memory */
};

static int attribute_of(const sim_device *device, int attribute) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        return device->integrated;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        return pci_number(device, 0);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return pci_number(device, 1);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        return pci_number(device, 2);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return device->compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return device->compute_minor;
    default:
        for (size_t number = 0; number < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; number++) {
            if (ATTRIBUTES[number].attribute == attribute) {
                return ATTRIBUTES[number].value;
            }
        }
        return 0;
    }
}

SIM_EXPORT int cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    ENTER_DEVICE("cuDeviceGetAttribute", device);
    REFUSE(value == NULL || attribute <= 0, INVALID_VALUE);
    *value = attribute_of(sim_device_at(device), attribute);
    return SUCCESS;
}

SIM_EXPORT int cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER_DEVICE("cuDeviceCanAccessPeer", device);
    REFUSE(sim_device_at(peer) == NULL, INVALID_DEVICE);
    *can = 0;
    return SUCCESS;
}

/*
 * Work of other engines in streams: see external_work.h
 */

static _Atomic(sim_external_wait *) external_wait; /* the function of libcudla, once libcudla is loaded */

SIM_EXPORT void sim_cuda_set_external_wait(sim_external_wait *wait) {
    external_wait = wait;
}

int cuda_await(void *stream) {
    sim_external_wait *wait = external_wait;
    return wait == NULL ? SUCCESS : wait(stream, NULL);
}

int cuda_query(CUstream stream) {
    sim_external_wait *wait = external_wait;
    bool is_finished = true;
    int said = wait == NULL ? SUCCESS : wait(stream, &is_finished);
    return said == SUCCESS && !is_finished ? NOT_READY : said;
}

/*
 * Entry points by name
 */

/* Names whose meaning depends on the requested version of CUDA. The last entry that is not newer is used. */
static const struct {
    const char *name;
    int version;
    const char *symbol;
} VERSIONED[] = {
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
    {"cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"},
    {"cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2"},
    {"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"},
};

/* Versions so old that every caller means them: 3.2, 4.0 and 6.5. */
static const char *const OLD_VERSIONS[] = {
    "cuArrayCreate",
    "cuCtxDestroy",         "cuCtxPopCurrent",     "cuCtxPushCurrent", "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxSetFlags", "cuDeviceTotalMem", "cuEventDestroy",
    "cuMemAlloc",           "cuMemAllocHost",      "cuMemAllocPitch",  "cuMemFree",
    "cuMemGetAddressRange", "cuMemGetInfo",        "cuMemHostGetDevicePointer", "cuMemHostRegister",
    "cuMemcpy2D",           "cuMemcpy2DAsync",     "cuMemcpy2DUnaligned", "cuMemcpyDtoD",
    "cuMemcpyDtoDAsync",    "cuMemcpyDtoH",        "cuMemcpyDtoHAsync", "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync",    "cuMemsetD16",         "cuMemsetD2D16",    "cuMemsetD2D32",
    "cuMemsetD2D8",         "cuMemsetD32",         "cuMemsetD8",       "cuStreamDestroy",
};

static void name_of_symbol(const char *name, int version, char *symbol, size_t bytes) {
    snprintf(symbol, bytes, "%s", name);
    for (size_t number = 0; number < sizeof OLD_VERSIONS / sizeof *OLD_VERSIONS; number++) {
        if (strcmp(OLD_VERSIONS[number], name) == 0) {
            snprintf(symbol, bytes, "%s_v2", name);
        }
    }
    for (size_t number = 0; number < sizeof VERSIONED / sizeof *VERSIONED; number++) {
        if (strcmp(VERSIONED[number].name, name) == 0 && VERSIONED[number].version <= version) {
            snprintf(symbol, bytes, "%s", VERSIONED[number].symbol);
        }
    }
}

SIM_EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    (void)flags; /* per-thread default streams are like all other streams here */
    char symbol[128];
    Dl_info self;
    name_of_symbol(name, version, symbol, sizeof symbol);
    /* Of the functions for EGL's syncs, only Tegra's libcuda has any. */
    if (strcmp(name, "cuEventCreateFromEGLSync") == 0 && sim_machine()->tegra[0] == '\0') {
        *function = NULL;
        return NOT_FOUND;
    }
    void *library = dladdr((void *)(uintptr_t)&cuInit, &self) == 0 ? NULL : dlopen(self.dli_fname, RTLD_LAZY);
    *function = library == NULL ? NULL : dlsym(library, symbol);
    if (library != NULL) {
        dlclose(library);
    }
    return *function == NULL ? NOT_FOUND : SUCCESS;
}

SIM_EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    int said = cuGetProcAddress(name, function, version, flags);
    if (status != NULL) {
        *status = said == SUCCESS ? 0 : 1; /* found, symbol not found */
    }
    return said;
}

/* The runtime's private tables do not exist here, so the CUDA runtime API does not work on the simulator. */
SIM_EXPORT int cuGetExportTable(const void **table, const CUuuid *identity) {
    (void)identity;
    *table = NULL;
    return NOT_SUPPORTED;
}
