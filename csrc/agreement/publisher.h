/* SPDX-License-Identifier: Apache-2.0 */
/* publisher.h - the controller's half of a switch (and of the publishing rank in replay). Exported to Python. */
#ifndef LAGOM_PUBLISHER_H
#define LAGOM_PUBLISHER_H

#include "protocol/lagom_protocol.h"

enum lagom_publish_result {
    LAGOM_PUBLISH_OK = 0,
    LAGOM_PUBLISH_BUSY = 1, /* a PREPARED is open, or not every counter has passed the last committed start_call */
    LAGOM_PUBLISH_INCOMPLETE = 2, /* not lagom_publish_complete */
    LAGOM_PUBLISH_BAD_PLAN = 3,
    LAGOM_PUBLISH_LATE = 4,     /* start_call is not past every counter */
    LAGOM_PUBLISH_REPLACED = 5, /* the plan names a communicator that is no longer the one of this entry */
};

enum lagom_outcome { LAGOM_OUTCOME_OPEN = 0, LAGOM_OUTCOME_COMMITTED = 1, LAGOM_OUTCOME_ABORTED = 2 };

/* Fills epoch, comm_id, history_call (= the largest counter now) and hash into *plan, writes it to the communicator and
 * sets the word PREPARED. Refuses before anything is changed. A comm_id that is there already must be this entry's: who
 * thinks about a communicator for long should say which, for entries are used again. */
enum lagom_publish_result lagom_publish(struct lagom_region *region, uint32_t communicator, struct lagom_plan *plan);

/* One look: commits if every rank acknowledged the same plan and the same history; aborts at once where a rank refused
 * or histories differ; else leaves it open. */
enum lagom_outcome lagom_publish_poll(struct lagom_region *region, uint32_t communicator);

/* Gives up on an open PREPARED. What the word says afterwards is the outcome. */
enum lagom_outcome lagom_publish_withdraw(struct lagom_region *region, uint32_t communicator);

/* 1 if every ready slot's counter is past start_call of the last committed plan, so a new one may be prepared. */
int lagom_publish_ready(struct lagom_region *region, uint32_t communicator);

/* 1 if a plan can be offered: the communicator has a plan in the region, lies within the node, and has one ready slot for
 * each of its ranks. An absent rank could never be asked, and one that is registered twice hides an absent one. */
int lagom_publish_complete(struct lagom_region *region, uint32_t communicator);

/* For a controller, before its first plan here: 1 if it publishes from now on. 0 while a rank does, which replays a saved
 * config and has not got it into force. */
int lagom_publish_claim(struct lagom_region *region, uint32_t communicator);

/* 1 if two ready slots of the communicator are of the same rank. */
int lagom_publish_has_double(struct lagom_region *region, uint32_t communicator);

/* Largest and smallest counter over the ready slots; returns how many slots there are. */
uint32_t lagom_counters(struct lagom_region *region, uint32_t communicator, uint64_t *smallest, uint64_t *largest);

#endif
