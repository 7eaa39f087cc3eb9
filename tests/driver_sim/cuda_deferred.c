/* Work that waits in the streams of the simulated libcuda, and the order in which it is done. See deferred_work.h. */
#define _GNU_SOURCE
#include "cuda_deferred.h"

#include <pthread.h>
#include <stdlib.h>

/* After each piece of work, one of another stream is done with a chance of one in this number. */
#define OTHERS_ONE_IN 32
#define PER_THREAD 2
#define LEGACY 1

struct ticket {
    int holders;
    bool is_done;
    queue *at;
};

typedef struct piece {
    struct piece *next;
    sim_work *work; /* NULL: only waits for `before` */
    void *argument;
    ticket *before;
    ticket *done;
} piece;

struct queue {
    queue *next;
    CUcontext context;
    piece *first;
    piece *last;
    bool is_blocking; /* in order with the legacy default stream */
    bool is_legacy;
    bool is_left;
    bool is_busy;
};

static pthread_mutex_t lock; /* recursive, because a host function may be among the work */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static queue *queues;
static uint64_t seed;
static int failure; /* the first error of any work, which stays, like a context's error */
static _Thread_local queue *of_thread;
static _Thread_local CUcontext context_of_thread;

static void set_up(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    const char *given = getenv("DRIVER_SIM_DEFER");
    seed = given == NULL ? 0 : strtoull(given, NULL, 10);
}

static bool is_deferring(void) {
    pthread_once(&once, set_up);
    return seed != 0;
}

static uint64_t random_number(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

ticket *ticket_hold(ticket *each) {
    if (each != NULL) {
        pthread_mutex_lock(&lock);
        each->holders++;
        pthread_mutex_unlock(&lock);
    }
    return each;
}

void ticket_drop(ticket *each) {
    if (each != NULL) {
        pthread_mutex_lock(&lock);
        bool is_last = --each->holders == 0;
        pthread_mutex_unlock(&lock);
        if (is_last) {
            free(each);
        }
    }
}

static queue *add_queue(CUcontext context, bool is_blocking, bool is_legacy) {
    queue *made = calloc(1, sizeof *made);
    *made = (queue){.next = queues, .context = context, .is_blocking = is_blocking, .is_legacy = is_legacy};
    queues = made;
    return made;
}

queue *queue_new(CUcontext context, bool is_blocking) {
    if (!is_deferring()) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    queue *made = add_queue(context, is_blocking, false);
    pthread_mutex_unlock(&lock);
    return made;
}

/* Frees the empty queues of streams that no longer exist. The caller holds the lock. */
static void clear_left(void) {
    for (queue **link = &queues; *link != NULL;) {
        queue *each = *link;
        if (each->is_left && each->first == NULL && !each->is_busy) {
            *link = each->next;
            free(each);
        } else {
            link = &each->next;
        }
    }
}

void queue_leave(queue *each) {
    if (each != NULL) {
        pthread_mutex_lock(&lock);
        each->is_left = true;
        clear_left();
        pthread_mutex_unlock(&lock);
    }
}

static queue *legacy_of(CUcontext context) {
    for (queue *each = queues; each != NULL; each = each->next) {
        if (each->is_legacy && each->context == context) {
            return each;
        }
    }
    return add_queue(context, false, true);
}

/* The queue of a default stream, which exists without being made. The caller holds the lock. */
static queue *default_queue(CUstream stream) {
    if ((uintptr_t)stream != PER_THREAD) {
        return legacy_of(cuda_current());
    }
    if (of_thread == NULL || context_of_thread != cuda_current()) {
        context_of_thread = cuda_current();
        of_thread = add_queue(context_of_thread, true, false);
    }
    return of_thread;
}

static queue *queue_of(CUstream stream) {
    queue *own = cuda_queue_of(stream);
    return own == NULL ? default_queue(stream) : own;
}

static ticket *append(queue *each, sim_work *work, void *argument, ticket *before) {
    piece *made = calloc(1, sizeof *made);
    ticket *done = calloc(1, sizeof *done);
    *done = (ticket){.holders = 1, .at = each};
    *made = (piece){.work = work, .argument = argument, .before = ticket_hold(before), .done = done};
    *(each->first == NULL ? &each->first : &each->last->next) = made;
    each->last = made;
    return done;
}

/* The legacy default stream waits for all blocking streams, and they for it. The caller holds the lock. */
static void order_default(queue *target) {
    for (queue *each = queues; each != NULL; each = each->next) {
        bool is_other = each->context == target->context && each->first != NULL;
        if (is_other && ((target->is_legacy && each->is_blocking) || (target->is_blocking && each->is_legacy))) {
            append(target, NULL, NULL, each->last->done);
        }
    }
}

int sim_cuda_put(void *stream, sim_work *work, void *argument) {
    if (!is_deferring()) {
        return work(argument);
    }
    pthread_mutex_lock(&lock);
    queue *target = queue_of(stream);
    order_default(target);
    append(target, work, argument, NULL);
    int said = failure;
    pthread_mutex_unlock(&lock);
    return said;
}

int queue_wait(CUstream stream, ticket *each) {
    if (each == NULL) {
        return SUCCESS;
    }
    pthread_mutex_lock(&lock);
    if (!each->is_done) {
        append(queue_of(stream), NULL, NULL, each);
    }
    int said = failure;
    pthread_mutex_unlock(&lock);
    return said;
}

/* The caller holds the lock. */
static ticket *end_of(queue *target) {
    order_default(target);
    return target->first == NULL ? NULL : ticket_hold(target->last->done);
}

ticket *queue_end(CUstream stream) {
    if (!is_deferring()) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    ticket *found = end_of(queue_of(stream));
    pthread_mutex_unlock(&lock);
    return found;
}

/* Does the first piece of a queue. The caller holds the lock. */
static void do_first(queue *each) {
    piece *taken = each->first;
    each->is_busy = true;
    int said = taken->work == NULL ? SUCCESS : taken->work(taken->argument);
    each->is_busy = false;
    failure = failure == SUCCESS ? said : failure;
    each->first = taken->next;
    taken->done->is_done = true;
    ticket_drop(taken->before);
    ticket_drop(taken->done);
    free(taken);
}

static bool is_ready(const queue *each) {
    return each->first != NULL && !each->is_busy && (each->first->before == NULL || each->first->before->is_done);
}

/* Does a piece of work of a stream that the seed chooses: streams run concurrently. */
static void do_other(void) {
    if (random_number() % OTHERS_ONE_IN != 0) {
        return;
    }
    unsigned ready = 0;
    queue *chosen = NULL;
    for (queue *each = queues; each != NULL; each = each->next) {
        if (is_ready(each) && random_number() % ++ready == 0) {
            chosen = each;
        }
    }
    if (chosen != NULL) {
        do_first(chosen);
    }
}

/* Does one piece of the work that a ticket needs; the ticket is not done yet. */
static void advance(const ticket *each) {
    queue *at = each->at;
    const piece *first = at->first;
    if (first->before != NULL && !first->before->is_done) {
        advance(first->before);
    } else {
        do_first(at);
    }
    do_other();
}

int ticket_finish(ticket *each) {
    if (!is_deferring()) {
        return SUCCESS;
    }
    pthread_mutex_lock(&lock);
    while (each != NULL && !each->is_done) {
        advance(each);
    }
    clear_left();
    int said = failure;
    pthread_mutex_unlock(&lock);
    return said;
}

bool ticket_advance(ticket *each) {
    if (!is_deferring()) {
        return true;
    }
    pthread_mutex_lock(&lock);
    if (each != NULL && !each->is_done) {
        advance(each);
    }
    bool is_done = each == NULL || each->is_done;
    pthread_mutex_unlock(&lock);
    return is_done;
}

static int finish_all(void) {
    pthread_mutex_lock(&lock);
    for (queue *each = queues; each != NULL; each = each->next) {
        while (each->first != NULL && !each->is_busy) {
            advance(each->first->done);
        }
    }
    clear_left();
    int said = failure;
    pthread_mutex_unlock(&lock);
    return said;
}

int sim_cuda_finish(void *stream) {
    if (!is_deferring()) {
        return SUCCESS;
    }
    if (stream == SIM_EVERY_STREAM) {
        return finish_all();
    }
    ticket *end = queue_end(stream);
    int said = ticket_finish(end);
    ticket_drop(end);
    return said;
}

int sim_cuda_finish_in(void *context, void *stream) {
    if (!is_deferring() || (uintptr_t)stream > LEGACY) {
        return sim_cuda_finish(stream);
    }
    pthread_mutex_lock(&lock);
    ticket *end = end_of(legacy_of(context));
    pthread_mutex_unlock(&lock);
    int said = ticket_finish(end);
    ticket_drop(end);
    return said;
}
