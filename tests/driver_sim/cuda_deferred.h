/* Queues of streams and what events wait for, between the sources of the simulated libcuda. See deferred_work.h. */
#ifndef CODECFLEET_DRIVER_SIM_CUDA_DEFERRED_H
#define CODECFLEET_DRIVER_SIM_CUDA_DEFERRED_H

#include "cuda_driver.h"
#include "deferred_work.h"

typedef struct queue queue;
typedef struct ticket ticket; /* of one piece of work: whether it is done */

/* A queue for a new stream, and its end: what is in it is done nevertheless. */
queue *queue_new(CUcontext context, bool is_blocking);
void queue_leave(queue *each);

/* The queue of a stream's handle; NULL where work is not deferred. */
queue *cuda_queue_of(CUstream stream);

/* A ticket for the end of what is in a stream now, to be dropped; NULL where nothing is. */
ticket *queue_end(CUstream stream);
void ticket_drop(ticket *each);
ticket *ticket_hold(ticket *each);

/* Lets what comes into a stream begin after a ticket's work. */
int queue_wait(CUstream stream, ticket *each);

/* Does all that a ticket's work needs, and it. Or a single piece of that; returns whether all is done then. */
int ticket_finish(ticket *each);
bool ticket_advance(ticket *each);

#endif
