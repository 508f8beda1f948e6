/* MIG instances, GPM, events. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

#define S sim_scenario()

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *out) { CALL(d); *out = sim_is_mig(g_) ? 0 : 7; RETURN(OK); }

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned index, void **out)
{
	double mode;
	CALL(d);
	if (!sim_number(g_, K_mig_mode, &mode)) RETURN(NOT_SUPPORTED);
	if (index >= 7) RETURN(INVALID_ARGUMENT);
	const struct scenario *s = S;
	double t = sim_now(s) - s->epoch;
	/* Index is the GPU instance's place: a removed one leaves a gap. */
	for (int i = 0, n = 0; mode > 0 && i < s->migs; i++) {
		const struct gpu *g = &s->gpu[MAX_GPUS + i];
		if (g->parent != g_ || n++ != (int)index) continue;
		if (t < g->from || t >= g->to) break;
		*out = sim_handle(MAX_GPUS + i);
		RETURN(OK);
	}
	RETURN(NOT_FOUND);
}

EXPORT int nvmlDeviceIsMigDeviceHandle(void *d, unsigned *out) { CALL(d); *out = sim_is_mig(g_); RETURN(OK); }

static int mig_id(int gpu, int id, unsigned *out)
{
	if (!sim_is_mig(gpu)) return NOT_SUPPORTED;
	*out = (unsigned)id;
	return OK;
}
EXPORT int nvmlDeviceGetGpuInstanceId(void *d, unsigned *out) { CALL(d); RETURN(mig_id(g_, S->gpu[g_].gi, out)); }
EXPORT int nvmlDeviceGetComputeInstanceId(void *d, unsigned *out) { CALL(d); RETURN(mig_id(g_, S->gpu[g_].ci, out)); }

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *d, void **out)
{
	CALL(d);
	if (!sim_is_mig(g_)) RETURN(INVALID_ARGUMENT);
	*out = sim_handle(S->gpu[g_].parent);
	RETURN(OK);
}

/* ---- GPM: two samples of one device; each metric is its mean between them */

struct sample { int gpu; double t; };
struct metric { unsigned id, code; double value; char *names[3]; };
struct metrics { unsigned version, count; struct sample *first, *second; struct metric metric[]; };

EXPORT int nvmlGpmSampleAlloc(struct sample **out) { CALL(NULL); *out = calloc(1, sizeof **out); RETURN(*out ? OK : UNKNOWN); }
EXPORT int nvmlGpmSampleFree(struct sample *sample) { CALL(NULL); free(sample); RETURN(OK); }

static int take(int gpu, struct sample *out)
{
	double v;
	int board = sim_board(S, gpu);
	if (!sim_number(board, K_gpm_supported, &v) || v == 0) return NOT_SUPPORTED;
	*out = (struct sample){gpu, sim_now(S)};
	return OK;
}

EXPORT int nvmlGpmSampleGet(void *d, struct sample *out) { CALL(d); RETURN(take(g_, out)); }

EXPORT int nvmlGpmMigSampleGet(void *d, unsigned gi, struct sample *out)
{
	CALL(d);
	for (int i = 0; i < S->migs; i++)
		if (S->gpu[MAX_GPUS + i].parent == g_ && S->gpu[MAX_GPUS + i].gi == (int)gi) RETURN(take(MAX_GPUS + i, out));
	RETURN(NOT_FOUND);
}

struct support { unsigned version, supported; };

EXPORT int nvmlGpmQueryDeviceSupport(void *d, struct support *out)
{
	double v;
	CALL(d);
	int board = sim_board(S, g_);
	out->supported = sim_number(board, K_gpm_supported, &v) && v != 0;
	RETURN(OK);
}

EXPORT int nvmlGpmMetricsGet(struct metrics *m)
{
	static const struct { unsigned id; enum key key; } known[] = {
		{1, K_graphics_active_pct}, {2, K_sm_active_pct}, {3, K_sm_occupancy_pct}, {4, K_integer_active_pct}, {5, K_tensor_active_pct},
		{10, K_dram_active_pct}, {11, K_fp64_active_pct}, {12, K_fp32_active_pct}, {13, K_fp16_active_pct}, {20, K_gpm_pcie_tx_mibps},
		{21, K_gpm_pcie_rx_mibps}, {60, K_gpm_nvlink_rx_mibps}, {61, K_gpm_nvlink_tx_mibps}};
	CALL(NULL);
	const struct scenario *s = S;
	if (!m->first || !m->second || m->first->gpu != m->second->gpu) RETURN(INVALID_ARGUMENT);
	double from = m->first->t - s->epoch, to = m->second->t - s->epoch;
	if (to - from < 0.1) RETURN(INVALID_ARGUMENT);
	for (unsigned i = 0; i < m->count; i++) {
		m->metric[i].code = NOT_SUPPORTED;
		m->metric[i].value = 0;
		for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
			if (known[k].id != m->metric[i].id || sim_value(s, m->first->gpu, known[k].key, m->second->t) <= NONE) continue;
			m->metric[i].code = OK;
			m->metric[i].value = sim_area(s, m->first->gpu, known[k].key, from, to) / (to - from);
		}
	}
	RETURN(OK);
}

/* ---- Events: those that the scenario dates after the registration */

struct set { unsigned long long types[MAX_GPUS]; double since[MAX_GPUS]; struct event given[MAX_EVENTS]; int n_given; };
struct event_data { void *device; unsigned long long type, data; unsigned gi, ci; };
#define SUPPORTED 0xc10full   /* no 0x200, 0x400, 0x800, 0x1000, 0x2000: one unsupported bit refuses all */

EXPORT int nvmlEventSetCreate(struct set **out) { CALL(NULL); *out = calloc(1, sizeof **out); RETURN(*out ? OK : UNKNOWN); }
EXPORT int nvmlEventSetFree(struct set *set) { CALL(NULL); free(set); RETURN(OK); }
EXPORT int nvmlDeviceGetSupportedEventTypes(void *d, unsigned long long *out) { CALL(d); *out = SUPPORTED; RETURN(OK); }

EXPORT int nvmlDeviceRegisterEvents(void *d, unsigned long long types, struct set *set)
{
	CALL(d);
	if (types & ~SUPPORTED) RETURN(NOT_SUPPORTED);
	if (sim_is_mig(g_)) RETURN(INVALID_ARGUMENT);
	set->types[g_] |= types;
	set->since[g_] = sim_now(S) - S->epoch;
	RETURN(OK);
}

static bool was_given(const struct set *set, const struct event *e)
{
	for (int i = 0; i < set->n_given; i++) {
		const struct event *o = &set->given[i];
		if (o->t == e->t && o->gpu == e->gpu && o->type == e->type && o->data == e->data && o->gi == e->gi && o->ci == e->ci &&
		    o->nth == e->nth) return true;
	}
	return false;
}

static bool next_event(struct set *set, struct event_data *out)
{
	const struct scenario *s = S;
	double now = sim_now(s) - s->epoch;
	for (int i = 0; i < s->events && set->n_given < MAX_EVENTS; i++) {
		const struct event *e = &s->event[i];
		if (e->t > now || e->t < set->since[e->gpu] || !(set->types[e->gpu] & e->type) || was_given(set, e)) continue;
		set->given[set->n_given++] = *e;
		*out = (struct event_data){sim_handle(e->gpu), e->type, e->data, e->gi, e->ci};
		return true;
	}
	return false;
}

static int wait_event(struct set *set, struct event_data *out, unsigned timeout_ms)
{
	for (unsigned waited = 0;; waited += 10) {
		if (next_event(set, out)) return OK;
		if (waited >= timeout_ms) return TIMEOUT;
		nanosleep(&(struct timespec){0, 10000000}, NULL);
		sim_look_again();
	}
}
EXPORT int nvmlEventSetWait(struct set *set, struct event_data *out, unsigned ms) { CALL(NULL); RETURN(wait_event(set, out, ms)); }
EXPORT int nvmlEventSetWait_v2(struct set *set, struct event_data *out, unsigned ms) { CALL(NULL); RETURN(wait_event(set, out, ms)); }
