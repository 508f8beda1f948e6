/* Values as functions of time, and the exact integral of power. */
#define _GNU_SOURCE
#include <math.h>
#include <time.h>

#include "sim.h"

double sim_now(const struct scenario *s)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	double real = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
	if (s->clock == 1) return s->unix0;
	return s->clock == 2 ? s->unix0 + (real - s->real0) * s->scale : real;
}

static int step_at(const struct series *p, double t)
{
	int low = 0, high = p->n - 1;
	while (low < high) {
		int middle = (low + high + 1) / 2;
		if (p->steps[middle].t <= t) low = middle;
		else high = middle - 1;
	}
	return low;
}

double sim_value(const struct scenario *s, int gpu, enum key key, double unix_s)
{
	const struct wave *w = &s->gpu[gpu].waves[key];
	const struct series *p = &s->gpu[gpu].values[key];
	double t = unix_s - s->epoch;
	if (w->on) return w->mean + w->amplitude * sin(2 * M_PI * (t / w->period + w->phase));
	return p->steps[step_at(p, t)].value;
}

/* From scenario time 0 to t. Before 0 nothing was drawn. */
static double area_to(const struct scenario *s, int gpu, enum key key, double t)
{
	const struct wave *w = &s->gpu[gpu].waves[key];
	const struct series *p = &s->gpu[gpu].values[key];
	if (t <= 0) return 0;
	if (w->on) {
		double turn = 2 * M_PI / w->period, start = 2 * M_PI * w->phase;
		return w->mean * t + w->amplitude / turn * (cos(start) - cos(turn * t + start));
	}
	int at = step_at(p, t);
	double from = p->steps[at].t < -1e17 ? 0 : p->steps[at].t;
	return p->areas[at] + p->steps[at].value * (t - from);
}

double sim_area(const struct scenario *s, int gpu, enum key key, double from, double to)
{
	return area_to(s, gpu, key, to) - area_to(s, gpu, key, from);
}

static double energy_mj(const struct scenario *s, int gpu, double t)
{
	double since = 0;
	for (int i = 0; i < s->gpu[gpu].energy_resets; i++)
		if (s->gpu[gpu].energy_reset[i] <= t && s->gpu[gpu].energy_reset[i] > since) since = s->gpu[gpu].energy_reset[i];
	return sim_area(s, gpu, K_power_mw, since, t);
}

bool sim_number(int gpu, enum key key, double *out)
{
	const struct scenario *s = sim_scenario();
	double now = sim_now(s), set = sim_value(s, gpu, key, now);
	if (set <= NONE) return false;
	*out = key == K_energy_mj ? energy_mj(s, gpu, now - s->epoch) : set;
	return true;
}
