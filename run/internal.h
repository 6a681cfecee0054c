/* What `cw` needs of a session beyond run.h: its steps one by one, and what they wrote. */
#ifndef CAUSEWAY_RUN_INTERNAL_H
#define CAUSEWAY_RUN_INTERNAL_H

#include "causeway/run.h"
#include "check.h"

/* The size of the next run (0: it is fixed), and its steps. */
cw_status session_settle(cw_run_session* session, uint64_t* size, uint64_t* first, uint64_t* count);
/* Run one step of these, and wait. */
cw_status session_step(cw_run_session* session, uint64_t step);
/* Wait for what was started. */
cw_status session_wait(cw_run_session* session);
/* The elements of a check, as the session's memory has them now, to `out`. */
cw_status session_read(cw_run_session* session, const file_check* check, void* out);

#endif
