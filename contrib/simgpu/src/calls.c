/* What every call goes through: is the library open, does the GPU answer, is a fault switched on. And the call log. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define ALL_GPUS ((1u << MAX_GPUS) - 1)

int sim_init_count;
static char handles[MAX_DEVICES];
static int log_fd = -2;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;   /* one that a hang may hold */

void *sim_handle(int gpu) { return &handles[gpu]; }

int sim_index_of(void *device)
{
	char *at = device;
	return at >= handles && at < handles + MAX_DEVICES ? (int)(at - handles) : -1;
}

static double scenario_time(const struct scenario *s) { return sim_now(s) - s->epoch; }

bool sim_is_lost(const struct scenario *s, int gpu) { return scenario_time(s) >= s->gpu[gpu].lost_at; }

int sim_visible_count(const struct scenario *s)
{
	int n = 0;
	for (int i = 0; i < s->gpus; i++) n += scenario_time(s) < s->gpu[i].gone_at;
	return n;
}

static void pause_s(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
	nanosleep(&t, NULL);
}

/* A fault names a function with or without its version, or all of them. */
static bool names(const struct fault *f, const char *function)
{
	size_t length = strlen(f->function);
	if (!strcmp(f->function, "*") || !strcmp(f->function, function)) return true;
	return !strncmp(f->function, function, length) && !strncmp(function + length, "_v", 2);
}

static bool meets(const struct scenario *s, const struct fault *f, int gpu)
{
	return gpu < 0 ? f->gpus == ALL_GPUS : f->gpus >> sim_board(s, gpu) & 1;
}

/* A hang ends when its time is over or when the scenario no longer has it. */
static void hang(const char *function, int gpu, double seconds)
{
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		pause_s(0.02);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9 >= seconds) return;
		const struct scenario *s = sim_look_again();
		bool on = false;
		for (int i = 0; i < s->faults; i++) {
			const struct fault *f = &s->fault[i];
			on |= f->hang_s > 0 && meets(s, f, gpu) && names(f, function);
		}
		if (!on) return;
	}
}

/* found: the call named no GPU when it began, and found this one. What is for all GPUs was met at its beginning. */
static int faults(const struct scenario *s, const char *function, int gpu, bool found)
{
	double t = scenario_time(s), hang_s = 0;
	bool block = false;
	int code = OK;
	for (int i = 0; i < s->faults; i++) {
		const struct fault *f = &s->fault[i];
		if (f->field || t < f->from || t >= f->to || !meets(s, f, gpu) || (found && f->gpus == ALL_GPUS)) continue;
		if (!names(f, function)) continue;
		if (f->abort) abort();
		if (f->sleep_us > 0) pause_s(f->sleep_us / 1e6);
		if (f->hang_s > hang_s) hang_s = f->hang_s;
		block |= f->block;
		if (f->has_code && code == OK) code = f->code;
	}
	if (block) pthread_mutex_lock(&driver_lock);
	if (hang_s > 0) hang(function, gpu, hang_s);
	if (block) pthread_mutex_unlock(&driver_lock);
	return code;
}

/* A GPU that is counted, or a MIG instance at its time: the handle of one that was removed is invalid. */
bool sim_exists(const struct scenario *s, int gpu)
{
	if (!sim_is_mig(gpu)) return gpu < s->gpus;
	double t = scenario_time(s);
	return gpu - MAX_GPUS < s->migs && t >= s->gpu[gpu].from && t < s->gpu[gpu].to;
}

int sim_enter(const char *function, void *device, int *gpu, bool alive)
{
	*gpu = -1;
	if (!__atomic_load_n(&sim_init_count, __ATOMIC_RELAXED)) return UNINITIALIZED;
	const struct scenario *s = sim_look_again();
	if (device) {
		*gpu = sim_index_of(device);
		if (*gpu < 0 || !sim_exists(s, *gpu)) return INVALID_ARGUMENT;
	}
	if (s->faults) {
		int code = faults(s, function, *gpu, false);
		if (code) return code;
		s = sim_scenario();   /* another one after a hang */
	}
	if (*gpu >= 0 && !alive) {
		if (sim_is_lost(s, sim_board(s, *gpu))) return GPU_IS_LOST;
		if (scenario_time(s) >= s->gpu[*gpu].gone_at) return GPU_IS_LOST;
		if (scenario_time(s) >= s->gpu[*gpu].reset_required_at) return RESET_REQUIRED;
	}
	return OK;
}

int sim_found(const char *function, int gpu, void **handle)
{
	int code = faults(sim_scenario(), function, gpu, true);
	if (code) return code;
	if (sim_is_lost(sim_scenario(), sim_board(sim_scenario(), gpu))) return GPU_IS_LOST;
	*handle = sim_handle(gpu);
	return OK;
}

const struct fault *sim_field_fault(int gpu, int field)
{
	const struct scenario *s = sim_scenario();
	double t = scenario_time(s);
	for (int i = 0; i < s->faults; i++)
		if (s->fault[i].field == field && meets(s, &s->fault[i], gpu) && t >= s->fault[i].from && t < s->fault[i].to)
			return &s->fault[i];
	return NULL;
}

int sim_leave(const char *function, int gpu, int code)
{
	sim_look_away();
	if (log_fd == -2) {
		const char *path = getenv("SIMGPU_CALLLOG");
		log_fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
	}
	if (log_fd >= 0) {
		char line[200];
		struct timespec t;
		clock_gettime(CLOCK_MONOTONIC, &t);
		int n = snprintf(line, sizeof line, "%lld.%06ld %ld %s %d %d\n", (long long)t.tv_sec, t.tv_nsec / 1000,
				 syscall(SYS_gettid), function, gpu, code);
		if (write(log_fd, line, (size_t)n) < 0) log_fd = -1;
	}
	return code;
}

static void in_child(void) { sim_init_count = 0; }   /* NVML's state is not inherited */

__attribute__((constructor)) static void start(void) { pthread_atfork(NULL, NULL, in_child); }
