/* The simulated driver: what its parts share. See ../README.md for the scenario file. */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 16
#define MAX_MIG 56
#define MAX_DEVICES (MAX_GPUS + MAX_MIG)   /* GPUs, then MIG instances */
#define MAX_LINKS 18
#define MAX_PROCESSES 256
#define MAX_FAULTS 128
#define MAX_EVENTS 4096

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, RESET_REQUIRED = 16,
       VERSION_MISMATCH = 25, UNKNOWN = 999 };

/* Every number that a scenario can set: X(name in the file, default). A default of NONE is "not supported". */
#define NONE (-9e18)
#include "keys.h"
enum key {
#define X(name, def) K_##name,
	KEYS
#undef X
	KEY_COUNT
};

struct step { double t, value; };
struct series { struct step *steps; int n; double *areas; /* integral up to each step */ };
struct wave { double mean, amplitude, period, phase; bool on; };

struct process { int pid, type; char name[64]; double memory, sm, mem, enc, dec, from, to; bool no_memory; };
enum { COMPUTE, GRAPHICS, MPS };

struct gpu {
	char name[96], uuid[96], serial[64], pci[32];
	struct series values[KEY_COUNT];
	struct wave waves[KEY_COUNT];
	double lost_at, gone_at, reset_required_at, energy_reset[8];
	int energy_resets, processes;
	int parent, gi, ci;                /* of a MIG instance */
	double from, to;                   /* when the instance exists */
	struct { int state, far_gpu, far_port; bool set; } link[MAX_LINKS];   /* state -1: not there; far_gpu -1: a switch */
	struct process process[MAX_PROCESSES];
};

struct fault { char function[96]; unsigned gpus; int code; bool has_code, abort, block; double sleep_us, hang_s, from, to; int field, type; bool add, no_time; };
struct event { double t; int gpu; unsigned long long type, data; unsigned gi, ci, nth; /* of those that are alike */ };

struct scenario {
	int users;                         /* calls that look at it, and one for being the present one */
	double epoch, real0, unix0, scale; int clock; /* 0 real, 1 frozen, 2 scaled */
	char driver[80]; int cuda, gpus, migs, faults, events;
	struct gpu gpu[MAX_DEVICES];
	struct fault fault[MAX_FAULTS];
	struct event event[MAX_EVENTS];
};

/* scenario.c */
struct scenario *sim_scenario(void);      /* what this call looks at: the file as it was when the call began */
struct scenario *sim_look_again(void);    /* in a call that waits: as it is now; what was looked at before may go */
void sim_look_away(void);
bool sim_load(void);                      /* false: the file is wrong and there was none before */
/* values.c */
double sim_now(const struct scenario *);  /* unix seconds by the scenario's clock */
double sim_value(const struct scenario *, int gpu, enum key, double unix_s);
double sim_area(const struct scenario *, int gpu, enum key, double from, double to);   /* integral over scenario time */
bool sim_number(int gpu, enum key, double *out);   /* now; false: not supported */
/* calls.c */
int sim_enter(const char *function, void *device, int *gpu, bool alive); /* first thing in every call; NVML's code */
int sim_leave(const char *function, int gpu, int code);
const struct fault *sim_field_fault(int gpu, int field);   /* NULL: none */
int sim_index_of(void *device);
void *sim_handle(int gpu);
int sim_link_state(int gpu, unsigned link);   /* -1: there is none */
int sim_visible_count(const struct scenario *);
bool sim_exists(const struct scenario *, int gpu);
bool sim_is_lost(const struct scenario *, int gpu);
int sim_found(const char *function, int gpu, void **handle);   /* of a call that finds a GPU: the code */
static inline bool sim_is_mig(int gpu) { return gpu >= MAX_GPUS; }
static inline int sim_board(const struct scenario *s, int gpu) { return sim_is_mig(gpu) ? s->gpu[gpu].parent : gpu; }
extern int sim_init_count;

#define CALL(device) int g_ = -1, c_ = sim_enter(__func__, device, &g_, false); if (c_) return sim_leave(__func__, g_, c_)
#define CALL_ALIVE(device) int g_ = -1, c_ = sim_enter(__func__, device, &g_, true); if (c_) return sim_leave(__func__, g_, c_)
#define RETURN(code) return sim_leave(__func__, g_, code)

#endif
