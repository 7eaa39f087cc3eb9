/*
 * The state of the simulated machine: fault counters, lost devices, Xid events, memory and codec sessions.
 *
 * If DRIVER_SIM_STATE names a file, several processes map the state: then the process that listens to NVML sees the Xid
 * of a worker, and a process that dies gives back what it held. Each process has its own table of allocations, because
 * addresses mean nothing in other processes.
 */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STATE_VARIABLE "DRIVER_SIM_STATE"
#define XIDS_KEPT 1024
#define XID_LOOK_US 5000
#define ACCOUNTS (SIM_DEVICES_MOST * (1 + SIM_SLICES_MOST))

typedef struct process_entry {
    int pid;
    uint64_t used_bytes[ACCOUNTS];
} process_entry;

typedef struct machine_state {
    pthread_mutex_t lock;
    uint64_t fault_calls[SIM_FAULTS_MOST];
    bool is_lost[SIM_DEVICES_MOST];
    bool is_seeded;
    uint64_t xid_count;
    sim_xid xids[XIDS_KEPT];
    sim_session sessions[SIM_SESSIONS_MOST];
    process_entry processes[SIM_PROCESSES_MOST];
} machine_state;

static machine_state *state; /* set once, under state_once */
static pthread_once_t state_once = PTHREAD_ONCE_INIT;

static struct {
    pthread_mutex_t lock;
    sim_allocation *entries; /* sorted by base */
    size_t count;
    size_t room;
    uint64_t last_identity;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * The state
 */

static void *map_state(int file) {
    int flags = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *place = mmap(NULL, sizeof(machine_state), PROT_READ | PROT_WRITE, flags, file, 0);
    if (place == MAP_FAILED) {
        fprintf(stderr, "codecfleet driver simulator: no memory for the machine's state\n");
        abort();
    }
    return place;
}

static void make_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

static void open_state(void) {
    const char *path = getenv(STATE_VARIABLE);
    bool is_shared = path != NULL && path[0] != '\0';
    int file = is_shared ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0) {
        state = map_state(-1);
        make_lock(&state->lock);
        return;
    }
    flock(file, LOCK_EX);
    struct stat about = {0};
    fstat(file, &about);
    bool is_new = about.st_size < (off_t)sizeof(machine_state);
    if (is_new && ftruncate(file, sizeof(machine_state)) != 0) {
        fprintf(stderr, "codecfleet driver simulator: the state %s cannot be made\n", path);
        abort();
    }
    state = map_state(file);
    if (is_new) {
        make_lock(&state->lock);
    }
    flock(file, LOCK_UN);
    close(file);
}

/* After a process died while it held the lock, the counters are still usable: each change is one store. */
static void lock_state(void) {
    pthread_once(&state_once, open_state);
    if (pthread_mutex_lock(&state->lock) == EOWNERDEAD) {
        pthread_mutex_consistent(&state->lock);
    }
}

static void unlock_state(void) {
    pthread_mutex_unlock(&state->lock);
}

static bool is_dead(int pid) {
    return pid != 0 && pid != getpid() && kill(pid, 0) != 0 && errno == ESRCH;
}

/* Takes back what dead processes held. The caller holds the lock. */
static void bury_dead(void) {
    for (int number = 0; number < SIM_PROCESSES_MOST; number++) {
        if (is_dead(state->processes[number].pid)) {
            memset(&state->processes[number], 0, sizeof state->processes[number]);
        }
    }
    for (int number = 0; number < SIM_SESSIONS_MOST; number++) {
        if (state->sessions[number].open && is_dead(state->sessions[number].pid)) {
            state->sessions[number].open = false;
        }
    }
}

/* This process's entry; NULL if the table is full. The caller holds the lock. */
static process_entry *own_entry(void) {
    int pid = getpid();
    process_entry *vacant = NULL;
    for (int number = 0; number < SIM_PROCESSES_MOST; number++) {
        if (state->processes[number].pid == pid) {
            return &state->processes[number];
        }
        if (vacant == NULL && state->processes[number].pid == 0) {
            vacant = &state->processes[number];
        }
    }
    if (vacant != NULL) {
        vacant->pid = pid;
    }
    return vacant;
}

uint64_t machine_count_fault_call(int fault) {
    lock_state();
    uint64_t calls = ++state->fault_calls[fault];
    unlock_state();
    return calls;
}

void sim_lose(int device) {
    if (device >= 0 && device < SIM_DEVICES_MOST) {
        lock_state();
        state->is_lost[device] = true;
        unlock_state();
    }
}

bool sim_is_lost(int device) {
    lock_state();
    bool lost = device >= 0 && device < SIM_DEVICES_MOST && state->is_lost[device];
    unlock_state();
    return lost;
}

/*
 * Xid events
 */

static void add_xid(sim_xid event) {
    state->xids[state->xid_count % XIDS_KEPT] = event;
    state->xid_count++;
}

void machine_seed_xids(const sim_xid *xids, int count) {
    lock_state();
    for (int number = 0; number < count && !state->is_seeded; number++) {
        add_xid(xids[number]);
    }
    state->is_seeded = true;
    unlock_state();
}

void sim_raise_xid(int device, uint64_t xid) {
    lock_state();
    add_xid((sim_xid){.device = device, .xid = xid});
    unlock_state();
}

uint64_t sim_xid_count(void) {
    sim_machine(); /* the scenario's own events come first */
    lock_state();
    uint64_t count = state->xid_count;
    unlock_state();
    return count;
}

static bool take_xid(uint64_t number, sim_xid *event) {
    lock_state();
    bool is_there = number < state->xid_count;
    if (is_there) {
        *event = state->xids[number % XIDS_KEPT];
    }
    unlock_state();
    return is_there;
}

/* Checks every few milliseconds: a condition variable would not survive a waiter that is killed. */
bool sim_wait_xid(uint64_t number, unsigned timeout_ms, sim_xid *event) {
    sim_machine();
    for (uint64_t waited_us = 0; !take_xid(number, event); waited_us += XID_LOOK_US) {
        if (waited_us >= (uint64_t)timeout_ms * 1000) {
            return false;
        }
        sim_sleep_us(XID_LOOK_US);
    }
    return true;
}

/*
 * Memory
 */

/* The first entry that begins after the address. The caller holds the lock. */
static size_t entry_after(uintptr_t address) {
    size_t low = 0;
    size_t high = memory.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memory.entries[middle].base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static sim_allocation *entry_with(uintptr_t address) {
    size_t after = entry_after(address);
    if (after == 0) {
        return NULL;
    }
    sim_allocation *entry = &memory.entries[after - 1];
    return address - entry->base < entry->bytes ? entry : NULL;
}

static bool remember(sim_allocation entry) {
    pthread_mutex_lock(&memory.lock);
    if (memory.count == memory.room) {
        size_t room = memory.room == 0 ? 256 : memory.room * 2;
        sim_allocation *entries = realloc(memory.entries, room * sizeof *entries);
        if (entries == NULL) {
            pthread_mutex_unlock(&memory.lock);
            return false;
        }
        memory.entries = entries;
        memory.room = room;
    }
    size_t place = entry_after(entry.base);
    bool overlaps = (place > 0 && entry.base - memory.entries[place - 1].base < memory.entries[place - 1].bytes) ||
                    (place < memory.count && memory.entries[place].base - entry.base < entry.bytes);
    if (!overlaps) {
        memmove(&memory.entries[place + 1], &memory.entries[place], (memory.count - place) * sizeof entry);
        entry.identity = ++memory.last_identity;
        memory.entries[place] = entry;
        memory.count++;
    }
    pthread_mutex_unlock(&memory.lock);
    return !overlaps;
}

static uint64_t used_of(int account) {
    uint64_t used = 0;
    for (int number = 0; number < SIM_PROCESSES_MOST; number++) {
        used += state->processes[number].used_bytes[account];
    }
    return used;
}

/* Counts bytes against a device; false if the device does not have enough left. */
static bool charge(const sim_device *device, uint64_t bytes) {
    lock_state();
    bury_dead();
    process_entry *own = own_entry();
    uint64_t used = used_of(device->account);
    bool fits = own != NULL && used <= device->memory_bytes && bytes <= device->memory_bytes - used;
    if (fits) {
        own->used_bytes[device->account] += bytes;
    }
    unlock_state();
    return fits;
}

static void discharge(int account, uint64_t bytes) {
    lock_state();
    process_entry *own = own_entry();
    if (own != NULL) {
        uint64_t *used = &own->used_bytes[account];
        *used -= bytes < *used ? bytes : *used;
    }
    unlock_state();
}

static size_t mapped_bytes(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page + page;
}

/* Maps pages that cost nothing until they are touched, followed by a page that must not be touched. */
static void *map_guarded(size_t bytes) {
    size_t all = mapped_bytes(bytes);
    char *place = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
        return NULL;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    mprotect(place + all - page, page, PROT_NONE);
    return place;
}

void *sim_memory_alloc(const sim_device *device, size_t bytes, sim_memory_kind kind, uint64_t owner) {
    bool is_charged = kind != SIM_HOST_MEMORY;
    if (bytes == 0 || (is_charged && !charge(device, bytes))) {
        return NULL;
    }
    void *place = map_guarded(bytes);
    int account = is_charged ? device->account : SIM_NO_DEVICE;
    sim_allocation entry = {
        .base = (uintptr_t)place, .bytes = bytes, .kind = kind, .account = account, .owner = owner};
    if (place != NULL && remember(entry)) {
        return place;
    }
    if (place != NULL) {
        munmap(place, mapped_bytes(bytes));
    }
    if (is_charged) {
        discharge(account, bytes);
    }
    return NULL;
}

bool sim_memory_register(void *address, size_t bytes, uint64_t owner) {
    return bytes > 0 && remember((sim_allocation){.base = (uintptr_t)address,
                                                  .bytes = bytes,
                                                  .kind = SIM_HOST_MEMORY,
                                                  .account = SIM_NO_DEVICE,
                                                  .registered = true,
                                                  .owner = owner});
}

/* Takes an entry out of the table. The caller holds the lock. */
static sim_allocation forget(sim_allocation *entry) {
    sim_allocation taken = *entry;
    size_t place = (size_t)(entry - memory.entries);
    memmove(entry, entry + 1, (memory.count - place - 1) * sizeof *entry);
    memory.count--;
    return taken;
}

static void release(sim_allocation entry) {
    if (entry.account != SIM_NO_DEVICE) {
        discharge(entry.account, entry.bytes);
    }
    if (!entry.registered) {
        munmap((void *)entry.base, mapped_bytes(entry.bytes));
    }
}

bool sim_memory_free(void *base) {
    pthread_mutex_lock(&memory.lock);
    sim_allocation *entry = entry_with((uintptr_t)base);
    bool is_known = entry != NULL && entry->base == (uintptr_t)base;
    sim_allocation taken = {0};
    if (is_known) {
        taken = forget(entry);
    }
    pthread_mutex_unlock(&memory.lock);
    if (is_known) {
        release(taken);
    }
    return is_known;
}

void sim_memory_free_of(uint64_t owner) {
    pthread_mutex_lock(&memory.lock);
    for (size_t number = memory.count; number > 0; number--) {
        if (memory.entries[number - 1].owner == owner) {
            release(forget(&memory.entries[number - 1]));
        }
    }
    pthread_mutex_unlock(&memory.lock);
}

bool sim_memory_find(const void *address, sim_allocation *found) {
    pthread_mutex_lock(&memory.lock);
    const sim_allocation *entry = entry_with((uintptr_t)address);
    if (entry != NULL && found != NULL) {
        *found = *entry;
    }
    pthread_mutex_unlock(&memory.lock);
    return entry != NULL;
}

bool sim_memory_holds(const void *address, size_t bytes) {
    sim_allocation found;
    return sim_memory_find(address, &found) && bytes <= found.bytes - ((uintptr_t)address - found.base);
}

uint64_t sim_memory_used(int account) {
    lock_state();
    bury_dead();
    uint64_t used = account >= 0 && account < ACCOUNTS ? used_of(account) : 0;
    unlock_state();
    return used;
}

static uint64_t used_on_gpu(const process_entry *process, int device) {
    uint64_t used = process->used_bytes[device];
    for (int slice = 0; slice < SIM_SLICES_MOST; slice++) {
        used += process->used_bytes[SIM_DEVICES_MOST + device * SIM_SLICES_MOST + slice];
    }
    return used;
}

int sim_processes(int device, sim_process *out, int most) {
    lock_state();
    bury_dead();
    int count = 0;
    for (int number = 0; number < SIM_PROCESSES_MOST && count < most; number++) {
        uint64_t used = used_on_gpu(&state->processes[number], device);
        if (used > 0) {
            out[count++] = (sim_process){.pid = state->processes[number].pid, .used_bytes = used};
        }
    }
    unlock_state();
    return count;
}

/*
 * Sessions
 */

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* A free place, or -1 if the device may have no more sessions of the engine. The caller holds the lock. */
static int vacant_session(const sim_device *device, sim_engine engine) {
    int vacant = -1;
    int taken = 0;
    for (int number = SIM_SESSIONS_MOST - 1; number >= 0; number--) {
        const sim_session *each = &state->sessions[number];
        taken += each->open && each->engine == engine && each->device == device->index;
        vacant = each->open ? vacant : number;
    }
    bool is_capped = engine == SIM_NVENC && device->encoder_sessions_max != SIM_UNKNOWN;
    return is_capped && taken >= device->encoder_sessions_max ? -1 : vacant;
}

int sim_session_open(const sim_device *device, sim_engine engine, const char *codec, unsigned width,
                     unsigned height) {
    lock_state();
    bury_dead();
    int number = vacant_session(device, engine);
    if (number >= 0) {
        sim_session *session = &state->sessions[number];
        *session = (sim_session){.open = true, .pid = getpid(), .device = device->index, .slice = device->slice,
                                 .engine = engine, .width = width, .height = height, .opened_us = now_us()};
        snprintf(session->codec, sizeof session->codec, "%s", codec);
    }
    unlock_state();
    if (number >= 0) {
        sim_trace("session", "engine=%s uuid=%s pid=%d codec=%s size=%ux%u", engine == SIM_NVENC ? "nvenc" : "nvdec",
                  device->uuid, getpid(), codec, width, height);
    }
    return number;
}

void sim_session_close(int session) {
    if (session >= 0 && session < SIM_SESSIONS_MOST) {
        lock_state();
        state->sessions[session].open = false;
        unlock_state();
    }
}

void sim_session_count_frame(int session) {
    if (session >= 0 && session < SIM_SESSIONS_MOST) {
        lock_state();
        state->sessions[session].frames++;
        unlock_state();
    }
}

int sim_sessions(sim_session *out, int most) {
    lock_state();
    bury_dead();
    int count = 0;
    for (int number = 0; number < SIM_SESSIONS_MOST && count < most; number++) {
        if (state->sessions[number].open) {
            out[count++] = state->sessions[number];
        }
    }
    unlock_state();
    return count;
}
