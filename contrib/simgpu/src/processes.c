/* Processes on a GPU. */
#include <string.h>

#include "sim.h"

#define NO_VALUE (~0ull)

struct entry { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct entry_v1 { unsigned pid; unsigned long long memory; };

static bool here(const struct process *p, int type, double t) { return p->type == type && t >= p->from && t < p->to; }

/* Size asked for with count 0, or a buffer too small: INSUFFICIENT_SIZE and the count. */
static int list(int gpu, int type, unsigned *count, void *out, bool v1)
{
	const struct scenario *s = sim_scenario();
	const struct gpu *g = &s->gpu[gpu];
	double t = sim_now(s) - s->epoch;
	unsigned n = 0;
	for (int i = 0; i < g->processes; i++) n += here(&g->process[i], type, t);
	unsigned room = *count;
	*count = n;
	if (n > room || (n && !out)) return INSUFFICIENT_SIZE;
	n = 0;
	for (int i = 0; i < g->processes; i++) {
		const struct process *p = &g->process[i];
		if (!here(p, type, t)) continue;
		unsigned long long memory = p->no_memory ? NO_VALUE : (unsigned long long)p->memory;
		if (v1) ((struct entry_v1 *)out)[n++] = (struct entry_v1){(unsigned)p->pid, memory};
		else ((struct entry *)out)[n++] = (struct entry){(unsigned)p->pid, memory, 0xffffffffu, 0xffffffffu};
	}
	return OK;
}

#define LISTS(name, type) \
	EXPORT int name(void *d, unsigned *n, void *out) { CALL(d); RETURN(list(g_, type, n, out, true)); } \
	EXPORT int name##_v2(void *d, unsigned *n, void *out) { CALL(d); RETURN(list(g_, type, n, out, false)); } \
	EXPORT int name##_v3(void *d, unsigned *n, void *out) { CALL(d); RETURN(list(g_, type, n, out, false)); }
LISTS(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
LISTS(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

struct sample { unsigned pid; unsigned long long timestamp_us; unsigned sm, mem, enc, dec; };

EXPORT int nvmlDeviceGetProcessUtilization(void *d, struct sample *out, unsigned *count, unsigned long long since_us)
{
	CALL(d);
	const struct scenario *s = sim_scenario();
	const struct gpu *g = &s->gpu[g_];
	double now = sim_now(s), t = now - s->epoch;
	unsigned long long stamp = (unsigned long long)(now * 1e6);
	unsigned n = 0, room = *count;
	for (int i = 0; i < g->processes; i++) n += t >= g->process[i].from && t < g->process[i].to;
	*count = n;
	if (!n || stamp <= since_us) { *count = 0; RETURN(NOT_FOUND); }
	if (!out || room < n) RETURN(INSUFFICIENT_SIZE);
	n = 0;
	for (int i = 0; i < g->processes; i++) {
		const struct process *p = &g->process[i];
		if (t >= p->from && t < p->to)
			out[n++] = (struct sample){(unsigned)p->pid, stamp, (unsigned)p->sm, (unsigned)p->mem, (unsigned)p->enc, (unsigned)p->dec};
	}
	RETURN(OK);
}
