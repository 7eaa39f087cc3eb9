/*
 * The simulated NVML: the use of a device: memory, processes, sessions, and use of each engine.
 */
#include "nvml.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLING_PERIOD_US 167000

/*
 * Use
 */

static uint64_t used_bytes(const subject *asked) {
    return sim_memory_used(asked->slice ? sim_slice_account(asked->gpu, slice_number(asked)) : asked->gpu->account);
}

static int ask_memory(const char *function, nvmlDevice_t handle, nvmlMemory_t *memory) {
    subject asked;
    int status = ask(function, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    memory->total = asked.slice ? asked.slice->memory_bytes : asked.gpu->memory_bytes;
    memory->used = used_bytes(&asked);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

SIM_EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *out) {
    return ask_memory(__func__, handle, out);
}

SIM_EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *out) {
    nvmlMemory_t memory;
    int status = ask_memory(__func__, handle, &memory);
    if (status != NVML_SUCCESS) {
        return status;
    }
    out->total = memory.total;
    out->reserved = 0;
    out->free = memory.free;
    out->used = memory.used;
    return NVML_SUCCESS;
}

/* Copies the open sessions of a GPU's engine; returns how many. */
int sessions_of(const sim_device *gpu, sim_engine engine, sim_session *out) {
    sim_session all[SIM_SESSIONS_MOST];
    int count = 0, open = sim_sessions(all, SIM_SESSIONS_MOST);
    for (int i = 0; i < open; i++) {
        if (all[i].device == gpu->index && all[i].engine == engine) {
            out[count++] = all[i];
        }
    }
    return count;
}

/* An open session is assumed to keep one engine busy. */
static unsigned percent_of(const sim_device *gpu, sim_engine engine) {
    sim_session sessions[SIM_SESSIONS_MOST];
    int count = sessions_of(gpu, engine, sessions), engines = gpu->engines[engine];
    if (!engines) {
        return 0;
    }
    return 100u * (unsigned)(count < engines ? count : engines) / (unsigned)engines;
}

ANSWER_PAIR(nvmlDeviceGetEncoderUtilization, unsigned, percent_of(asked.gpu, SIM_NVENC), SAMPLING_PERIOD_US)
ANSWER_PAIR(nvmlDeviceGetDecoderUtilization, unsigned, percent_of(asked.gpu, SIM_NVDEC), SAMPLING_PERIOD_US)
ANSWER_PAIR(nvmlDeviceGetJpgUtilization, unsigned, percent_of(asked.gpu, SIM_NVJPG), SAMPLING_PERIOD_US)
ANSWER_PAIR(nvmlDeviceGetOfaUtilization, unsigned, percent_of(asked.gpu, SIM_OFA), SAMPLING_PERIOD_US)

SIM_EXPORT int nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        *out = (nvmlUtilization_t){0, 0}; /* nothing is computed here */
    }
    return status;
}

/* Measured on an H200: 100 for H.264 and HEVC, although it has no encoder. */
SIM_EXPORT int nvmlDeviceGetEncoderCapacity(nvmlDevice_t handle, unsigned query, unsigned *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    *out = 100;
    bool has_av1 = (unsigned)architecture_of(asked.gpu) >= ADA && asked.gpu->engines[SIM_NVENC];
    return query == NVML_ENCODER_QUERY_AV1 && !has_av1 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static unsigned codec_number(const char *codec) {
    return !strcmp(codec, "hevc") ? 1 : !strcmp(codec, "av1") ? 2 : 0;
}

static unsigned average_fps(const sim_session *session) {
    uint64_t open_us = monotonic_us() - session->opened_us;
    return open_us ? (unsigned)(session->frames * 1000000 / open_us) : 0;
}

static nvmlEncoderSessionInfo_t session_info(const sim_session *session, int number) {
    return (nvmlEncoderSessionInfo_t){.sessionId = (unsigned)number + 1,
                                      .pid = (unsigned)session->pid,
                                      .codecType = codec_number(session->codec),
                                      .hResolution = session->width,
                                      .vResolution = session->height,
                                      .averageFps = average_fps(session)};
}

SIM_EXPORT int nvmlDeviceGetEncoderStats(nvmlDevice_t handle, unsigned *count, unsigned *fps, unsigned *latency_us) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    sim_session sessions[SIM_SESSIONS_MOST];
    unsigned sum_fps = 0, open = (unsigned)sessions_of(asked.gpu, SIM_NVENC, sessions);
    for (unsigned i = 0; i < open; i++) {
        sum_fps += average_fps(&sessions[i]);
    }
    *count = open;
    *fps = open ? sum_fps / open : 0;
    *latency_us = 0;
    return NVML_SUCCESS;
}

/* Unlike for other lists, the length is returned with NVML_SUCCESS. */
SIM_EXPORT int nvmlDeviceGetEncoderSessions(nvmlDevice_t handle, unsigned *room, nvmlEncoderSessionInfo_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    sim_session sessions[SIM_SESSIONS_MOST];
    unsigned count = (unsigned)sessions_of(asked.gpu, SIM_NVENC, sessions);
    for (unsigned i = 0; out && i < count && i < *room; i++) {
        out[i] = session_info(&sessions[i], (int)i);
    }
    *room = count;
    return NVML_SUCCESS;
}

static int compute_processes(const char *function, nvmlDevice_t handle, unsigned *room, nvmlProcessInfo_t *out) {
    subject asked;
    int status = ask_gpu(function, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    sim_process running[SIM_PROCESSES_MOST];
    nvmlProcessInfo_t told[SIM_PROCESSES_MOST];
    int count = sim_processes(asked.gpu->index, running, SIM_PROCESSES_MOST);
    for (int i = 0; i < count; i++) {
        told[i] =
            (nvmlProcessInfo_t){(unsigned)running[i].pid, running[i].used_bytes, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    }
    return put_list(told, sizeof *told, (unsigned)count, room, out);
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned *room, nvmlProcessInfo_t *out) {
    return compute_processes(__func__, handle, room, out);
}

SIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *room, nvmlProcessInfo_t *out) {
    return compute_processes(__func__, handle, room, out);
}

static int no_graphics(const char *function, nvmlDevice_t handle, unsigned *room, nvmlProcessInfo_t *out) {
    subject asked;
    int status = ask_gpu(function, handle, &asked);
    return status == NVML_SUCCESS ? put_list(NULL, sizeof *out, 0, room, out) : status;
}

SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned *room, nvmlProcessInfo_t *out) {
    return no_graphics(__func__, handle, room, out);
}

SIM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned *room, nvmlProcessInfo_t *out) {
    return no_graphics(__func__, handle, room, out);
}

static unsigned percent_of_process(const sim_device *gpu, sim_engine engine, int pid) {
    sim_session sessions[SIM_SESSIONS_MOST];
    int open = sessions_of(gpu, engine, sessions), own = 0;
    for (int i = 0; i < open; i++) {
        own += sessions[i].pid == pid;
    }
    return open ? percent_of(gpu, engine) * (unsigned)own / (unsigned)open : 0;
}

static uint64_t wall_clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

SIM_EXPORT int nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *out, unsigned *room,
                                               uint64_t since_us) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status != NVML_SUCCESS) {
        return status;
    }
    sim_process running[SIM_PROCESSES_MOST];
    nvmlProcessUtilizationSample_t told[SIM_PROCESSES_MOST];
    uint64_t now_us = wall_clock_us();
    int count = since_us < now_us ? sim_processes(asked.gpu->index, running, SIM_PROCESSES_MOST) : 0;
    for (int i = 0; i < count; i++) {
        told[i] = (nvmlProcessUtilizationSample_t){.pid = (unsigned)running[i].pid,
                                                   .timeStamp = now_us,
                                                   .encUtil = percent_of_process(asked.gpu, SIM_NVENC, running[i].pid),
                                                   .decUtil = percent_of_process(asked.gpu, SIM_NVDEC, running[i].pid)};
    }
    return count ? put_list(told, sizeof *told, (unsigned)count, room, out) : NVML_ERROR_NOT_FOUND;
}

/*
 * GPM: the use of each engine
 */

struct nvml_gpm_sample {
    struct nvml_gpm_sample *next;
    const sim_device *gpu; /* NULL: no sample yet */
    const sim_slice *slice;
    int sessions[SIM_ENGINES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nvmlGpmSample_t samples; /* guarded by `lock` */

static bool has_gpm(const sim_device *gpu) {
    return architecture_of(gpu) >= HOPPER && !is_guest(gpu);
}

SIM_EXPORT int nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *out) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    if (status == NVML_SUCCESS) {
        out->isSupportedDevice = has_gpm(asked.gpu);
    }
    return status;
}

SIM_EXPORT int nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    nvmlGpmSample_t sample = calloc(1, sizeof *sample);
    if (!sample) {
        return NVML_ERROR_MEMORY;
    }
    pthread_mutex_lock(&lock);
    sample->next = samples;
    samples = sample;
    pthread_mutex_unlock(&lock);
    *out = sample;
    return NVML_SUCCESS;
}

/* The caller holds the lock. */
static bool is_sample(nvmlGpmSample_t sample) {
    nvmlGpmSample_t each = samples;
    while (each && each != sample) {
        each = each->next;
    }
    return each != NULL;
}

SIM_EXPORT int nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    pthread_mutex_lock(&lock);
    nvmlGpmSample_t *link = &samples;
    while (*link && *link != sample) {
        link = &(*link)->next;
    }
    bool known = *link != NULL;
    if (known) {
        *link = sample->next;
    }
    pthread_mutex_unlock(&lock);
    if (known) {
        free(sample);
    }
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* Counts the open sessions of an engine, in a whole GPU or in a slice's GPU instance. */
static int count_sessions(const sim_device *gpu, const sim_slice *slice, sim_engine engine) {
    sim_session sessions[SIM_SESSIONS_MOST];
    int open = sessions_of(gpu, engine, sessions), count = 0;
    for (int i = 0; i < open; i++) {
        int place = sessions[i].slice;
        count += !slice || (place != SIM_UNKNOWN && gpu->slices[place].gpu_instance == slice->gpu_instance);
    }
    return count;
}

static int take_sample(const sim_device *gpu, const sim_slice *slice, nvmlGpmSample_t sample) {
    if (architecture_of(gpu) < HOPPER) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_lock(&lock);
    bool known = is_sample(sample);
    for (int engine = 0; known && engine < SIM_ENGINES; engine++) {
        sample->sessions[engine] = count_sessions(gpu, slice, (sim_engine)engine);
    }
    if (known) {
        sample->gpu = gpu;
        sample->slice = slice;
    }
    pthread_mutex_unlock(&lock);
    return known ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

SIM_EXPORT int nvmlGpmSampleGet(nvmlDevice_t handle, nvmlGpmSample_t sample) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    return status == NVML_SUCCESS ? take_sample(asked.gpu, NULL, sample) : status;
}

SIM_EXPORT int nvmlGpmMigSampleGet(nvmlDevice_t handle, unsigned gpu_instance, nvmlGpmSample_t sample) {
    subject asked;
    int status = ask_gpu(__func__, handle, &asked);
    for (int i = 0; status == NVML_SUCCESS && i < asked.gpu->slice_count; i++) {
        if ((unsigned)asked.gpu->slices[i].gpu_instance == gpu_instance) {
            return take_sample(asked.gpu, &asked.gpu->slices[i], sample);
        }
    }
    return status == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : status;
}

/* The engine of a metric, and the engine's number; false if the metric concerns no engine. */
static bool find_metric(unsigned metric, sim_engine *engine, int *number) {
    static const struct {
        unsigned first;
        int count;
        sim_engine engine;
    } metrics[] = {{30, 8, SIM_NVDEC}, {40, 8, SIM_NVJPG}, {50, 2, SIM_OFA}, {166, 4, SIM_NVENC}};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        if (metric >= metrics[i].first && metric < metrics[i].first + (unsigned)metrics[i].count) {
            *engine = metrics[i].engine;
            *number = (int)(metric - metrics[i].first);
            return true;
        }
    }
    return false;
}

static void measure(nvmlGpmSample_t sample, nvmlGpmMetric_t *metric) {
    sim_engine engine;
    int number;
    const int *engines = sample->slice ? sample->slice->engines : sample->gpu->engines;
    bool told = find_metric(metric->metricId, &engine, &number) && number < engines[engine];
    metric->nvmlReturn = told ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    metric->value = told && number < sample->sessions[engine] ? 100.0 : 0.0;
}

SIM_EXPORT int nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *asked) {
    int status = enter_open(__func__, SIM_NO_DEVICE);
    if (status != NVML_SUCCESS) {
        return status;
    }
    pthread_mutex_lock(&lock);
    nvmlGpmSample_t first = asked->sample1, second = asked->sample2;
    bool fit = is_sample(first) && is_sample(second) && first->gpu && first->gpu == second->gpu &&
               first->slice == second->slice;
    for (unsigned i = 0; fit && i < asked->numMetrics; i++) {
        measure(second, &asked->metrics[i]);
    }
    pthread_mutex_unlock(&lock);
    return fit ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
