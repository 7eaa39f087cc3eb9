/* Queues of streams and tickets of events, for the sources of the simulated libcuda. See deferred_work.h. */
#ifndef CODECFLEET_DRIVER_SIM_CUDA_DEFERRED_H
#define CODECFLEET_DRIVER_SIM_CUDA_DEFERRED_H

#include "cuda_driver.h"
#include "deferred_work.h"

typedef struct queue queue;
typedef struct ticket ticket; /* whether one piece of work is done */

/* Makes a queue for a new stream, and ends a queue, whose remaining work is done nevertheless. */
queue *queue_new(CUcontext context, bool is_blocking);
void queue_leave(queue *each);

/* The queue of a stream's handle; NULL if work is not deferred. */
queue *cuda_queue_of(CUstream stream);

/* A ticket for the end of all work that is in a stream now; the caller must drop it. NULL if the stream is empty. */
ticket *queue_end(CUstream stream);
void ticket_drop(ticket *each);
ticket *ticket_hold(ticket *each);

/* Lets all later work of a stream begin after a ticket's work. */
int queue_wait(CUstream stream, ticket *each);

/* Does a ticket's work and all that the work needs, or a single piece of that. Returns whether all is done then. */
int ticket_finish(ticket *each);
bool ticket_advance(ticket *each);

#endif
