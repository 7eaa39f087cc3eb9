/* For scenario.c: the parts of the machine's state that no library uses. */
#ifndef CODECFLEET_DRIVER_SIM_MACHINE_H
#define CODECFLEET_DRIVER_SIM_MACHINE_H

#include "scenario.h"

#define SIM_FAULTS_MOST 256

/* Counts a call that a fault concerns; returns the call's number, from 1. */
uint64_t machine_count_fault_call(int fault);

/* Adds the scenario's own Xids to the machine, once for all processes that share it. */
void machine_seed_xids(const sim_xid *xids, int count);

#endif
