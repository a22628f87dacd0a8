/* holders.h - who else profiles this process. CUPTI's Activity API is one for all, and tells nobody. */
#ifndef LAGOM_HOLDERS_H
#define LAGOM_HOLDERS_H

/* Somebody who profiles right now or holds the process for it, in words ("torch.profiler"); NULL = nobody is known. */
const char *lagom_profiling_holder(void);

#endif
