/*
 * The scenario of the driver simulator: reads the scenario, executes its faults, and writes the trace.
 *
 * A scenario is a text file with one "key value" per line; tests/driver_sim/scenario.py writes it. The keys are in KEYS
 * below. A malformed line ends the process with a message, so that no test runs with half a scenario.
 */
#define _GNU_SOURCE
#include "scenario.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

#define FILE_VARIABLE "DRIVER_SIM"
#define TRACE_VARIABLE "DRIVER_SIM_TRACE"
#define BAD_SCENARIO_EXIT 97
#define LINE_BYTES 1024
#define XIDS_MOST 64
#define FUNCTIONS_MOST 1024
#define TRACE_BYTES 4096

typedef enum fault_action {
    FAULT_STATUS,
    FAULT_HANG,
    FAULT_EXIT,
    FAULT_LOSE,
    FAULT_BREAK,
    FAULT_XID,
    FAULT_SHORT,
    FAULT_CORRUPT,
    FAULT_SLOW,
    FAULT_ANSWER
} fault_action;

typedef struct sim_fault {
    char function[SIM_TEXT_BYTES];
    int device; /* SIM_NO_DEVICE: any */
    uint64_t first_call;
    uint64_t last_call;
    fault_action action;
    uint64_t value;
} sim_fault;

static struct {
    sim_node node;
    sim_device gpus[SIM_DEVICES_MOST];
    sim_fault faults[SIM_FAULTS_MOST];
    int fault_count;
    sim_xid xids[XIDS_MOST];
    int xid_count;
} scenario; /* written once, under scenario_once */

static struct {
    int file;
    pthread_mutex_t lock;
    struct {
        const char *name;
        uint64_t calls;
    } functions[FUNCTIONS_MOST];
} trace = {.file = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t scenario_once = PTHREAD_ONCE_INIT;

/*
 * Reading
 */

static _Noreturn void refuse_line(const char *line) {
    fprintf(stderr, "codecfleet driver simulator: the scenario has a line that makes no sense: %s\n", line);
    _exit(BAD_SCENARIO_EXIT);
}

static void copy_text(char *to, const char *from) {
    snprintf(to, SIM_TEXT_BYTES, "%s", from);
}

static sim_device *last_device(const char *line) {
    if (scenario.node.device_count == 0) {
        refuse_line(line);
    }
    return &scenario.gpus[scenario.node.device_count - 1];
}

static bool read_device(const char *value) {
    (void)value;
    int index = scenario.node.device_count;
    if (index == SIM_DEVICES_MOST) {
        return false;
    }
    scenario.gpus[index] = (sim_device){
        .index = index,
        .slice = SIM_UNKNOWN,
        .account = index,
        .video_clock_max_mhz = SIM_UNKNOWN,
        .encoder_sessions_max = SIM_UNKNOWN,
    };
    scenario.node.device_count++;
    return true;
}

static bool read_driver(const char *value) {
    copy_text(scenario.node.driver, value);
    scenario.node.driver_major = atoi(value);
    return scenario.node.driver_major > 0;
}

static bool read_node(const char *value) {
    copy_text(scenario.node.name, value);
    return true;
}

static bool read_cuda_version(const char *value) {
    scenario.node.cuda_version = atoi(value);
    return scenario.node.cuda_version > 0;
}

static bool read_tegra(const char *value) {
    copy_text(scenario.node.tegra, value);
    return true;
}

static bool read_name(const char *value) {
    copy_text(last_device(value)->name, value);
    return strstr(value, "(simulated)") != NULL;
}

static bool read_uuid(const char *value) {
    copy_text(last_device(value)->uuid, value);
    return strncmp(value, "GPU-", 4) == 0;
}

static bool read_pci_bus_id(const char *value) {
    copy_text(last_device(value)->pci_bus_id, value);
    return true;
}

static bool read_architecture(const char *value) {
    copy_text(last_device(value)->architecture, value);
    return true;
}

static bool read_compute(const char *value) {
    sim_device *device = last_device(value);
    return sscanf(value, "%d.%d", &device->compute_major, &device->compute_minor) == 2;
}

static bool read_memory(const char *value) {
    return sscanf(value, "%" SCNu64, &last_device(value)->memory_bytes) == 1;
}

static bool read_video_clock(const char *value) {
    return sscanf(value, "%d", &last_device(value)->video_clock_max_mhz) == 1;
}

static bool read_counts(const char *value, int counts[SIM_ENGINES]) {
    return sscanf(value, "%d %d %d %d %d", &counts[SIM_NVDEC], &counts[SIM_NVENC], &counts[SIM_NVJPG],
                  &counts[SIM_OFA], &counts[SIM_DLA]) == SIM_ENGINES;
}

static bool read_engines(const char *value) {
    return read_counts(value, last_device(value)->engines);
}

static bool read_flag(const char *value, bool *flag) {
    *flag = value[0] == '1';
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
}

static bool read_integrated(const char *value) {
    return read_flag(value, &last_device(value)->integrated);
}

static bool read_mig_enabled(const char *value) {
    return read_flag(value, &last_device(value)->mig_enabled);
}

static bool read_mig_capable(const char *value) {
    return read_flag(value, &last_device(value)->mig_capable);
}

static bool read_virtualization(const char *value) {
    return sscanf(value, "%d", &last_device(value)->virtualization) == 1;
}

static bool read_vgpu_scheduler(const char *value) {
    copy_text(last_device(value)->vgpu_scheduler, value);
    return true;
}

static bool read_encoder_sessions_max(const char *value) {
    return sscanf(value, "%d", &last_device(value)->encoder_sessions_max) == 1;
}

static bool read_decode_picture_us(const char *value) {
    return sscanf(value, "%u", &last_device(value)->decode_picture_us) == 1;
}

static bool read_encode_picture_us(const char *value) {
    return sscanf(value, "%u", &last_device(value)->encode_picture_us) == 1;
}

static bool read_capability(const char *value) {
    sim_device *device = last_device(value);
    if (device->capability_count == SIM_CAPABILITIES_MOST) {
        return false;
    }
    sim_capability *each = &device->capabilities[device->capability_count++];
    char direction[8] = "";
    int got = sscanf(value, "%7s %11s %d %d %u %u", direction, each->codec, &each->chroma, &each->bit_depth,
                     &each->width_max, &each->height_max);
    each->encode = strcmp(direction, "encode") == 0;
    return got == 6 && (each->encode || strcmp(direction, "decode") == 0);
}

static bool read_slice(const char *value) {
    sim_device *device = last_device(value);
    if (device->slice_count == SIM_SLICES_MOST) {
        return false;
    }
    sim_slice *each = &device->slices[device->slice_count++];
    int end = 0;
    int got = sscanf(value, "%95s %95s %95s %d %d %u %u %u %" SCNu64 " %n", each->uuid, each->profile, each->name,
                     &each->gpu_instance, &each->compute_instance, &each->compute_slices, &each->start, &each->size,
                     &each->memory_bytes, &end);
    return got == 9 && read_counts(value + end, each->engines);
}

static bool read_profile(const char *value) {
    sim_device *device = last_device(value);
    if (device->profile_count == SIM_PROFILES_MOST) {
        return false;
    }
    sim_profile *each = &device->profiles[device->profile_count++];
    int end = 0;
    int got = sscanf(value, "%95s %u %u %u %u %" SCNu64 " %u %u %n", each->name, &each->kind, &each->id, &each->slices,
                     &each->most, &each->memory_bytes, &each->size, &each->start_count, &end);
    if (got != 8 || each->start_count > SIM_SLICES_MOST) {
        return false;
    }
    for (unsigned i = 0; i < each->start_count; i++) {
        int used = 0;
        if (sscanf(value + end, "%u %n", &each->starts[i], &used) != 1) {
            return false;
        }
        end += used;
    }
    return read_counts(value + end, each->engines);
}

static bool read_moment(const char *value, sim_moment *when) {
    return sscanf(value, "%u-%u-%uT%u:%u:%u", &when->year, &when->month, &when->day, &when->hour, &when->minute,
                  &when->second) == 6;
}

static bool read_licensed(const char *value) {
    last_device(value)->licence_applies = true;
    return read_flag(value, &last_device(value)->licensed);
}

static bool read_licence_expires(const char *value) {
    return read_moment(value, &last_device(value)->licence_expires);
}

static bool read_vgpu(const char *value) {
    sim_device *device = last_device(value);
    if (device->vgpu_count == SIM_VGPUS_MOST) {
        return false;
    }
    sim_vgpu *each = &device->vgpus[device->vgpu_count++];
    int licensed = 0;
    int got = sscanf(value, "%u %u %" SCNu64 " %d %d %u %95s", &each->instance, &each->type_id,
                     &each->framebuffer_bytes, &licensed, &each->frame_rate_limit, &each->gpu_instance, each->uuid);
    each->licensed = licensed != 0;
    return got == 7;
}

static sim_vgpu *last_vgpu(const char *value) {
    sim_device *device = last_device(value);
    if (device->vgpu_count == 0) {
        refuse_line(value);
    }
    return &device->vgpus[device->vgpu_count - 1];
}

static bool read_vgpu_vm(const char *value) {
    copy_text(last_vgpu(value)->vm, value);
    return true;
}

static bool read_vgpu_type(const char *value) {
    copy_text(last_vgpu(value)->type_name, value);
    return true;
}

static bool read_vgpu_expires(const char *value) {
    return read_moment(value, &last_vgpu(value)->licence_expires);
}

static bool read_supported_vgpu(const char *value) {
    sim_device *device = last_device(value);
    if (device->vgpu_type_count == SIM_VGPU_TYPES_MOST) {
        return false;
    }
    sim_vgpu_type *each = &device->vgpu_types[device->vgpu_type_count++];
    int end = 0;
    int got = sscanf(value, "%u %u %" SCNu64 " %u %u %u %u %u %95s %95s %n", &each->id, &each->most,
                     &each->framebuffer_bytes, &each->displays, &each->width, &each->height, &each->frame_rate_limit,
                     &each->profile_id, each->vgpu_class, each->licences, &end);
    copy_text(each->name, value + end);
    return got == 10 && end > 0;
}

static bool read_xid(const char *value) {
    if (scenario.xid_count == XIDS_MOST) {
        return false;
    }
    sim_xid *each = &scenario.xids[scenario.xid_count++];
    each->device = last_device(value)->index;
    return sscanf(value, "%" SCNu64, &each->xid) == 1;
}

static bool read_action(const char *word, fault_action *action) {
    static const char *const words[] = {"status", "hang", "exit", "lose", "break", "xid", "short", "corrupt", "slow", "answer"};
    for (int number = 0; number < (int)(sizeof words / sizeof *words); number++) {
        if (strcmp(words[number], word) == 0) {
            *action = (fault_action)number;
            return true;
        }
    }
    return false;
}

/* "3" is the third call, "3+" the third and all later ones, "*" every call. */
static bool read_calls(const char *word, sim_fault *fault) {
    fault->first_call = 1;
    fault->last_call = UINT64_MAX;
    if (strcmp(word, "*") == 0) {
        return true;
    }
    char rest = '\0';
    int got = sscanf(word, "%" SCNu64 "%c", &fault->first_call, &rest);
    if (got == 1) {
        fault->last_call = fault->first_call;
    }
    return fault->first_call > 0 && (got == 1 || (got == 2 && rest == '+'));
}

static bool read_fault(const char *value) {
    if (scenario.fault_count == SIM_FAULTS_MOST) {
        return false;
    }
    sim_fault *fault = &scenario.faults[scenario.fault_count++];
    char device[16] = "";
    char calls[24] = "";
    char action[16] = "";
    int got =
        sscanf(value, "%95s %15s %23s %15s %" SCNu64, fault->function, device, calls, action, &fault->value);
    fault->device = strcmp(device, "*") == 0 ? SIM_NO_DEVICE : atoi(device);
    if (got < 4 || !read_calls(calls, fault) || !read_action(action, &fault->action)) {
        return false;
    }
    bool needs_value = fault->action == FAULT_STATUS || fault->action == FAULT_EXIT || fault->action == FAULT_XID ||
                       fault->action == FAULT_SLOW || fault->action == FAULT_ANSWER;
    return needs_value == (got == 5);
}

static const struct {
    const char *key;
    bool (*read)(const char *value);
} KEYS[] = {
    {"node", read_node},
    {"driver", read_driver},
    {"cuda_version", read_cuda_version},
    {"tegra", read_tegra},
    {"device", read_device},
    {"name", read_name},
    {"uuid", read_uuid},
    {"pci_bus_id", read_pci_bus_id},
    {"architecture", read_architecture},
    {"compute_capability", read_compute},
    {"memory_bytes", read_memory},
    {"video_clock_max_mhz", read_video_clock},
    {"engines", read_engines},
    {"integrated", read_integrated},
    {"mig_enabled", read_mig_enabled},
    {"mig_capable", read_mig_capable},
    {"virtualization", read_virtualization},
    {"vgpu_scheduler", read_vgpu_scheduler},
    {"encoder_sessions_max", read_encoder_sessions_max},
    {"decode_picture_us", read_decode_picture_us},
    {"encode_picture_us", read_encode_picture_us},
    {"capability", read_capability},
    {"slice", read_slice},
    {"profile", read_profile},
    {"licensed", read_licensed},
    {"licence_expires", read_licence_expires},
    {"supported_vgpu", read_supported_vgpu},
    {"vgpu", read_vgpu},
    {"vgpu_vm", read_vgpu_vm},
    {"vgpu_type", read_vgpu_type},
    {"vgpu_expires", read_vgpu_expires},
    {"xid", read_xid},
    {"fault", read_fault},
};

static void read_line(char *line) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '\0' || line[0] == '#') {
        return;
    }
    size_t length = strcspn(line, " ");
    const char *value = line[length] == ' ' ? line + length + 1 : line + length;
    for (size_t number = 0; number < sizeof KEYS / sizeof *KEYS; number++) {
        bool is_it = strlen(KEYS[number].key) == length && strncmp(KEYS[number].key, line, length) == 0;
        if (is_it && KEYS[number].read(value)) {
            return;
        }
    }
    refuse_line(line);
}

static void read_file(const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        fprintf(stderr, "codecfleet driver simulator: the scenario %s cannot be read\n", path);
        _exit(BAD_SCENARIO_EXIT);
    }
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, file) != NULL) {
        read_line(line);
    }
    fclose(file);
}

static void open_trace(void) {
    const char *path = getenv(TRACE_VARIABLE);
    if (path != NULL && path[0] != '\0') {
        trace.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    }
}

static void load_scenario(void) {
    scenario.node = (sim_node){.driver = "580.126.20", .driver_major = 580, .cuda_version = 13000};
    const char *path = getenv(FILE_VARIABLE);
    if (path != NULL && path[0] != '\0') {
        read_file(path);
    }
    open_trace();
    machine_seed_xids(scenario.xids, scenario.xid_count);
}

static void load(void) {
    pthread_once(&scenario_once, load_scenario);
}

/*
 * Devices
 */

const sim_node *sim_machine(void) {
    load();
    return &scenario.node;
}

const sim_device *sim_gpu_at(int index) {
    load();
    return index >= 0 && index < scenario.node.device_count ? &scenario.gpus[index] : NULL;
}

const sim_capability *sim_find_capability(const sim_device *device, bool encode, const char *codec, int chroma,
                                          int bit_depth) {
    for (int number = 0; number < device->capability_count; number++) {
        const sim_capability *each = &device->capabilities[number];
        if (each->encode == encode && each->chroma == chroma && each->bit_depth == bit_depth &&
            strcmp(each->codec, codec) == 0) {
            return each;
        }
    }
    return NULL;
}

/*
 * Trace
 */

bool sim_is_traced(void) {
    load();
    return trace.file >= 0;
}

/* One write per line: O_APPEND keeps the lines of several threads and processes whole. */
static void append_line(char *line, int length, size_t room) {
    size_t bytes = length < 0 ? 0 : (size_t)length;
    bytes = bytes < room - 1 ? bytes : room - 2;
    line[bytes] = '\n';
    if (write(trace.file, line, bytes + 1) < 0) {
        fprintf(stderr, "codecfleet driver simulator: the trace cannot be written\n");
    }
}

void sim_trace(const char *function, const char *format, ...) {
    if (!sim_is_traced()) {
        return;
    }
    char line[TRACE_BYTES];
    int length = snprintf(line, sizeof line / 2, "%s ", function);
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length, format, arguments);
    va_end(arguments);
    append_line(line, length, sizeof line);
}

static uint64_t count_call(const char *function) {
    uint64_t hash = 14695981039346656037u;
    for (const char *letter = function; *letter != '\0'; letter++) {
        hash = (hash ^ (unsigned char)*letter) * 1099511628211u;
    }
    pthread_mutex_lock(&trace.lock);
    size_t place = hash % FUNCTIONS_MOST;
    while (trace.functions[place].name != NULL && strcmp(trace.functions[place].name, function) != 0) {
        place = (place + 1) % FUNCTIONS_MOST;
    }
    if (trace.functions[place].name == NULL) {
        trace.functions[place].name = strdup(function);
    }
    uint64_t calls = ++trace.functions[place].calls;
    pthread_mutex_unlock(&trace.lock);
    return calls;
}

/*
 * Faults
 */

void sim_sleep_us(uint64_t microseconds) {
    struct timespec left = {.tv_sec = (time_t)(microseconds / 1000000),
                            .tv_nsec = (long)(microseconds % 1000000) * 1000};
    while (microseconds > 0 && nanosleep(&left, &left) != 0) {
    }
}

static _Noreturn void hang(void) {
    for (;;) {
        pause();
    }
}

static int status_of_lost_device(const char *function) {
    if (strncmp(function, "nvml", 4) == 0) {
        return 15; /* NVML_ERROR_GPU_IS_LOST */
    }
    if (strncasecmp(function, "nvenc", 5) == 0) {
        return 20; /* NV_ENC_ERR_GENERIC */
    }
    return strncmp(function, "cudla", 5) == 0 ? 6 : 999; /* cudlaErrorCuda, CUDA_ERROR_UNKNOWN */
}

/* The value that FAULT_ANSWER gives for the function that this thread has entered. */
static _Thread_local bool is_answered;
static _Thread_local uint64_t answered;

uint64_t sim_answer(uint64_t otherwise) { return is_answered ? answered : otherwise; }

/* The effect of FAULT_BREAK on this process: CUDA's error stays until the process ends. Others are not affected. */
static volatile bool is_broken[SIM_DEVICES_MOST];

static bool is_broken_here(const char *function, int device) {
    return device < SIM_DEVICES_MOST && is_broken[device] && strncmp(function, "nvml", 4) != 0;
}

static sim_verdict act(const sim_fault *fault, int device, int *status) {
    switch (fault->action) {
    case FAULT_STATUS:
        *status = (int)fault->value;
        return SIM_STATUS;
    case FAULT_HANG:
        hang();
    case FAULT_EXIT:
        _exit((int)fault->value);
    case FAULT_LOSE:
        sim_lose(device);
        return SIM_GO;
    case FAULT_BREAK:
        if (device >= 0 && device < SIM_DEVICES_MOST) {
            is_broken[device] = true;
        }
        return SIM_GO;
    case FAULT_XID:
        sim_raise_xid(device, fault->value);
        return SIM_GO;
    case FAULT_SHORT:
        return SIM_SHORT;
    case FAULT_CORRUPT:
        return SIM_CORRUPT;
    case FAULT_SLOW:
        sim_sleep_us(fault->value * 1000);
        return SIM_GO;
    case FAULT_ANSWER:
        is_answered = true;
        answered = fault->value;
        return SIM_GO;
    }
    return SIM_GO;
}

/* All faults are executed; the verdict is that of the last fault that has one. */
static sim_verdict meet_faults(const char *function, int device, int *status) {
    sim_verdict verdict = SIM_GO;
    for (int number = 0; number < scenario.fault_count; number++) {
        const sim_fault *fault = &scenario.faults[number];
        bool is_here = fault->device == SIM_NO_DEVICE || fault->device == device;
        if (!is_here || strcmp(fault->function, function) != 0) {
            continue;
        }
        uint64_t call = machine_count_fault_call(number);
        if (call >= fault->first_call && call <= fault->last_call) {
            sim_trace("fault", "function=%s device=%d", function, device);
            sim_verdict said = act(fault, fault->device == SIM_NO_DEVICE ? device : fault->device, status);
            verdict = said == SIM_GO ? verdict : said;
        }
    }
    return verdict;
}

static sim_verdict after_faults(const char *function, int device, int *status, sim_verdict verdict) {
    if (device != SIM_NO_DEVICE && (sim_is_lost(device) || is_broken_here(function, device))) {
        *status = status_of_lost_device(function);
        return SIM_STATUS;
    }
    return verdict;
}

sim_verdict sim_enter(const char *function, int device, int *status) {
    is_answered = false;
    if (sim_is_traced()) {
        sim_trace(function, "device=%d call=%" PRIu64, device, count_call(function));
    }
    sim_verdict verdict = meet_faults(function, device, status);
    return after_faults(function, device, status, verdict);
}

sim_verdict sim_meet(const char *function, int device, int *status) {
    return after_faults(function, device, status, meet_faults(function, device, status));
}
