/* The scenario file: read, checked, and read again when another file took its place. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "sim.h"

#define CHECK_EVERY_NS 5000000

static struct scenario *current;
static _Thread_local struct scenario *looked_at;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER, counting = PTHREAD_MUTEX_INITIALIZER;   /* in this order */
static struct stat seen;
static int64_t next_check;

struct reader { struct scenario *s; int line; char error[256]; };

static const char *const names[] = {
#define X(name, def) #name,
	KEYS
#undef X
};
static const double defaults[] = {
#define X(name, def) def,
	KEYS
#undef X
};

static bool fail(struct reader *r, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(r->error, sizeof r->error, format, args);
	va_end(args);
	return false;
}

static void text(char *out, size_t size, const char *in) { snprintf(out, size, "%s", in); }

/* Words of a line; quotes keep blanks together, also behind key=. */
static int split(char *line, char **words, int most)
{
	int n = 0;
	char *out = line;
	for (char *p = line; *p && n < most;) {
		while (isspace((unsigned char)*p)) p++;
		if (!*p || *p == '#') break;
		words[n++] = out;
		bool quoted = false;
		for (; *p && (quoted || !isspace((unsigned char)*p)); p++)
			if (*p == '"') quoted = !quoted;
			else *out++ = *p;
		if (*p) p++;
		*out++ = 0;
	}
	return n;
}

static bool number(struct reader *r, const char *word, double *out)
{
	char *end;
	*out = strtod(word, &end);
	return (end != word && !*end) || fail(r, "%s is not a number", word);
}

static bool gpus_of(struct reader *r, const char *word, unsigned *mask)
{
	*mask = 0;
	if (!strcmp(word, "*")) { *mask = 0xffff; return true; }
	for (const char *p = word; *p;) {
		char *end;
		long first = strtol(p, &end, 10), last = first;
		if (end == p) return fail(r, "%s is no list of GPUs", word);
		if (*end == '-') { p = end + 1; last = strtol(p, &end, 10); if (end == p) return fail(r, "%s is no list of GPUs", word); }
		if (first < 0 || last < first || last >= MAX_GPUS) return fail(r, "%s: GPUs are 0 to %d", word, MAX_GPUS - 1);
		for (long i = first; i <= last; i++) *mask |= 1u << i;
		p = *end == ',' ? end + 1 : end;
		if (*end && *end != ',') return fail(r, "%s is no list of GPUs", word);
	}
	return *mask || fail(r, "no GPU named");
}

static bool add_step(struct series *s, double t, double value)
{
	int at = s->n;
	while (at && s->steps[at - 1].t > t) at--;
	if (at && s->steps[at - 1].t == t) { s->steps[at - 1].value = value; return true; }
	struct step *grown = realloc(s->steps, (size_t)(s->n + 1) * sizeof *grown);
	if (!grown) return false;
	memmove(grown + at + 1, grown + at, (size_t)(s->n - at) * sizeof *grown);
	grown[at] = (struct step){t, value};
	s->steps = grown;
	s->n++;
	return true;
}

static bool set(struct reader *r, struct gpu *g, double t, const char *key, const char *value)
{
	if (!strcmp(key, "name")) return text(g->name, sizeof g->name, value), true;
	if (!strcmp(key, "uuid")) return text(g->uuid, sizeof g->uuid, value), true;
	if (!strcmp(key, "serial")) return text(g->serial, sizeof g->serial, value), true;
	if (!strcmp(key, "pci")) return text(g->pci, sizeof g->pci, value), true;
	for (int k = 0; k < KEY_COUNT; k++)
		if (!strcmp(key, names[k])) {
			double v = NONE;
			if (strcmp(value, "na") && !number(r, value, &v)) return false;
			return add_step(&g->values[k], t, v) || fail(r, "out of memory");
		}
	return fail(r, "unknown key %s", key);
}

static bool each_gpu(struct reader *r, unsigned mask, double t, char **words, int n)
{
	for (int i = 0; i < MAX_GPUS; i++)
		if (mask >> i & 1)
			for (int w = 0; w < n; w++) {
				char word[256], *value;
				text(word, sizeof word, words[w]);
				if (!(value = strchr(word, '='))) return fail(r, "%s: write key=value", word);
				*value++ = 0;
				if (!set(r, &r->s->gpu[i], t, word, value)) return false;
			}
	return true;
}

/* "@T" or "@T1..T2" among the words, which is taken out: when it holds. */
static bool span(struct reader *r, char **words, int *n, double *from, double *to)
{
	*from = -1e18; *to = 1e18;
	for (int i = 0; i < *n; i++) {
		if (words[i][0] != '@') continue;
		char word[64], *dots;
		text(word, sizeof word, words[i] + 1);
		memmove(words + i, words + i + 1, (size_t)(--*n - i) * sizeof *words);
		if ((dots = strstr(word, ".."))) { *dots = 0; if (!number(r, dots + 2, to)) return false; }
		return number(r, word, from);
	}
	return true;
}

static const char *option(char **words, int n, const char *key)
{
	size_t length = strlen(key);
	for (int i = 0; i < n; i++)
		if (!strncmp(words[i], key, length) && words[i][length] == '=') return words[i] + length + 1;
	return NULL;
}

static bool optional(struct reader *r, char **words, int n, const char *key, double *out)
{
	const char *word = option(words, n, key);
	return !word || number(r, word, out);
}

static bool read_fault(struct reader *r, unsigned mask, char **words, int n)
{
	if (r->s->faults == MAX_FAULTS) return fail(r, "too many faults");
	struct fault *f = &r->s->fault[r->s->faults];
	const char *function = option(words, n, "function"), *hang = option(words, n, "hang");
	double code = 0, field = 0, type = -1;
	f->gpus = mask;
	if (!function) return fail(r, "a fault needs function=NAME or function=*");
	text(f->function, sizeof f->function, function);
	if (!span(r, words, &n, &f->from, &f->to) || !optional(r, words, n, "sleep_us", &f->sleep_us) ||
	    !optional(r, words, n, "return", &code) || !optional(r, words, n, "field", &field) ||
	    !optional(r, words, n, "type", &type)) return false;
	f->has_code = option(words, n, "return") != NULL;
	f->code = (int)code;
	f->field = (int)field;
	f->type = (int)type;
	f->add = option(words, n, "add") != NULL;
	f->no_time = option(words, n, "timestamp") != NULL;
	f->block = option(words, n, "block") != NULL;
	for (int i = 0; i < n; i++) f->abort |= !strcmp(words[i], "abort");
	if (hang && !strcmp(hang, "forever")) f->hang_s = 1e18;
	else if (hang && !number(r, hang, &f->hang_s)) return false;
	r->s->faults++;
	return true;
}

static bool read_process(struct reader *r, unsigned mask, char **words, int n)
{
	struct process p = {.type = COMPUTE};
	const char *pid = option(words, n, "pid"), *name = option(words, n, "name"), *type = option(words, n, "type"),
		   *memory = option(words, n, "mem_bytes");
	double value = 0;
	if (!pid || !number(r, pid, &value)) return fail(r, "a process needs pid=N");
	p.pid = (int)(unsigned)value;
	text(p.name, sizeof p.name, name ? name : "python3");
	if (type) p.type = !strcmp(type, "graphics") ? GRAPHICS : !strcmp(type, "mps") ? MPS : COMPUTE;
	p.no_memory = memory && !strcmp(memory, "na");
	if (memory && !p.no_memory && !number(r, memory, &p.memory)) return false;
	if (!span(r, words, &n, &p.from, &p.to) || !optional(r, words, n, "sm", &p.sm) || !optional(r, words, n, "mem", &p.mem) ||
	    !optional(r, words, n, "enc", &p.enc) || !optional(r, words, n, "dec", &p.dec)) return false;
	for (int i = 0; i < MAX_GPUS; i++)
		if (mask >> i & 1) {
			struct gpu *g = &r->s->gpu[i];
			if (g->processes == MAX_PROCESSES) return fail(r, "too many processes");
			g->process[g->processes++] = p;
		}
	return true;
}

static bool read_event(struct reader *r, unsigned mask, char **words, int n)
{
	double t, to, code = 0, gi = 0xffffffffu, ci = 0xffffffffu, type = 8;
	if (!span(r, words, &n, &t, &to) || !optional(r, words, n, "code", &code) || !optional(r, words, n, "gi", &gi) ||
	    !optional(r, words, n, "ci", &ci) || !optional(r, words, n, "type", &type)) return false;
	for (int i = 0; i < MAX_GPUS; i++)
		if (mask >> i & 1) {
			if (r->s->events == MAX_EVENTS) return fail(r, "too many events");
			struct event e = {t, i, (unsigned long long)type, (unsigned long long)code, (unsigned)gi, (unsigned)ci, 0};
			for (int before = 0; before < r->s->events; before++) {
				const struct event *b = &r->s->event[before];
				e.nth += b->t == t && b->gpu == i && b->type == e.type && b->data == e.data && b->gi == e.gi && b->ci == e.ci;
			}
			r->s->event[r->s->events++] = e;
		}
	return true;
}

static bool read_wave(struct reader *r, unsigned mask, char **words, int n)
{
	for (int k = 0; n && k < KEY_COUNT; k++)
		if (!strcmp(words[0], names[k])) {
			struct wave w = {.on = true, .period = 60};
			if (!optional(r, words, n, "mean", &w.mean) || !optional(r, words, n, "amplitude", &w.amplitude) ||
			    !optional(r, words, n, "period", &w.period) || !optional(r, words, n, "phase", &w.phase)) return false;
			if (w.period <= 0) return fail(r, "a wave's period is above 0");
			for (int i = 0; i < MAX_GPUS; i++)
				if (mask >> i & 1) r->s->gpu[i].waves[k] = w;
			return true;
		}
	return fail(r, "wave KEY mean=.. amplitude=.. period=..");
}

/* mig PARENT gi=1 ci=0 profile=1g.10gb memory_bytes=N uuid=MIG-.. key=value ... @T1..T2 */
static bool read_mig(struct reader *r, unsigned mask, char **words, int n)
{
	for (int i = 0; i < MAX_GPUS; i++) {
		if (!(mask >> i & 1)) continue;
		if (r->s->migs == MAX_MIG) return fail(r, "too many MIG instances");
		int at = MAX_GPUS + r->s->migs, left = n;
		char *mine[64];
		memcpy(mine, words, (size_t)n * sizeof *mine);
		struct gpu *g = &r->s->gpu[at];
		double gi = 0, ci = 0;
		const char *profile = option(words, n, "profile");
		if (!span(r, mine, &left, &g->from, &g->to) || !optional(r, mine, left, "gi", &gi) || !optional(r, mine, left, "ci", &ci)) return false;
		g->parent = i;
		g->gi = (int)gi;
		g->ci = (int)ci;
		snprintf(g->name, sizeof g->name, "%.60s MIG %.30s", r->s->gpu[i].name, profile ? profile : "1g.10gb");
		snprintf(g->uuid, sizeof g->uuid, "MIG-%.27s%02x%02x%04x", r->s->gpu[i].uuid + 4, (unsigned)g->gi, (unsigned)g->ci, (unsigned)i);
		for (int w = 0; w < left; w++)
			if (strncmp(mine[w], "gi=", 3) && strncmp(mine[w], "ci=", 3) && strncmp(mine[w], "profile=", 8)) {
				char word[256], *value;
				text(word, sizeof word, mine[w]);
				if (!(value = strchr(word, '='))) return fail(r, "%s: write key=value", word);
				*value++ = 0;
				if (!set(r, g, -1e18, word, value)) return false;
			}
		r->s->migs++;
	}
	return true;
}

/* nvlink GPUS LINKS state=0..3|none far=N|switch port=P */
static bool read_nvlink(struct reader *r, unsigned mask, char **words, int n)
{
	unsigned links;
	double port = 0, state = 1, far = -1;
	if (!n || !gpus_of(r, words[0], &links)) return r->error[0] ? false : fail(r, "nvlink GPUS LINKS key=value ...");
	if (!strcmp(words[0], "*")) links = (1u << MAX_LINKS) - 1;
	const char *state_word = option(words, n, "state"), *far_word = option(words, n, "far");
	if (state_word && !strcmp(state_word, "none")) state = -1;
	else if (state_word && !number(r, state_word, &state)) return false;
	if (far_word && strcmp(far_word, "switch") && !number(r, far_word, &far)) return false;
	if (!optional(r, words, n, "port", &port)) return false;
	for (int i = 0; i < MAX_GPUS; i++)
		for (int link = 0; link < MAX_LINKS; link++)
			if (mask >> i & 1 && links >> link & 1) {
				r->s->gpu[i].link[link].set = true;
				r->s->gpu[i].link[link].state = (int)state;
				r->s->gpu[i].link[link].far_gpu = (int)far;
				r->s->gpu[i].link[link].far_port = (int)port;
			}
	return true;
}

static bool read_clock(struct reader *r, char **words, int n)
{
	struct scenario *s = r->s;
	if (n == 1 && !strcmp(words[0], "real")) return s->clock = 0, true;
	if (n == 2 && !strcmp(words[0], "frozen")) return s->clock = 1, number(r, words[1], &s->unix0);
	if (n == 4 && !strcmp(words[0], "scale"))
		return s->clock = 2, number(r, words[1], &s->scale) && number(r, words[2], &s->real0) && number(r, words[3], &s->unix0);
	return fail(r, "clock real | frozen UNIX | scale X REAL0 UNIX0");
}

static bool read_gpu_line(struct reader *r, const char *what, char **words, int n)
{
	unsigned mask;
	double from, to;
	if (!n || !gpus_of(r, words[0], &mask)) return r->error[0] ? false : fail(r, "%s needs a list of GPUs", what);
	words++; n--;
	if (!strcmp(what, "fault")) return read_fault(r, mask, words, n);
	if (!strcmp(what, "mig")) return read_mig(r, mask, words, n);
	if (!strcmp(what, "nvlink")) return read_nvlink(r, mask, words, n);
	if (!strcmp(what, "process")) return read_process(r, mask, words, n);
	if (!strcmp(what, "xid") || !strcmp(what, "event")) return read_event(r, mask, words, n);
	if (!strcmp(what, "gpu") && n && !strcmp(words[0], "wave")) return read_wave(r, mask, words + 1, n - 1);
	if (!strcmp(what, "gpu")) {
		double t = -1e18;
		if (n && words[0][0] == '@') { if (!number(r, words[0] + 1, &t)) return false; words++; n--; }
		return each_gpu(r, mask, t, words, n);
	}
	if (!span(r, words, &n, &from, &to)) return false;
	for (int i = 0; i < MAX_GPUS; i++) {
		struct gpu *g = &r->s->gpu[i];
		if (!(mask >> i & 1)) continue;
		if (!strcmp(what, "lost")) g->lost_at = from;
		else if (!strcmp(what, "gone")) g->gone_at = from;
		else if (!strcmp(what, "reset_required")) g->reset_required_at = from;
		else if (!strcmp(what, "energy_reset")) {
			if (g->energy_resets == 8) return fail(r, "too many energy_reset");
			g->energy_reset[g->energy_resets++] = from;
		}
	}
	return true;
}

static bool read_line(struct reader *r, char **words, int n)
{
	static const char *const gpu_lines[] = {"gpu", "fault", "mig", "nvlink", "process", "xid", "event", "lost", "gone", "reset_required", "energy_reset"};
	struct scenario *s = r->s;
	double value;
	if (!strcmp(words[0], "clock")) return read_clock(r, words + 1, n - 1);
	for (size_t i = 0; i < sizeof gpu_lines / sizeof *gpu_lines; i++)
		if (!strcmp(words[0], gpu_lines[i])) return read_gpu_line(r, words[0], words + 1, n - 1);
	if (n != 2) return fail(r, "%s is not known, or needs one value", words[0]);
	if (!strcmp(words[0], "driver")) return text(s->driver, sizeof s->driver, words[1]), true;
	if (!number(r, words[1], &value)) return false;
	if (!strcmp(words[0], "epoch")) return s->epoch = value, true;
	if (!strcmp(words[0], "cuda")) return s->cuda = (int)(value * 1000 + 0.5) / 1000 * 1000 + (int)(value * 10 + 0.5) % 10 * 10, true;
	if (!strcmp(words[0], "gpus"))
		return (value >= 0 && value <= MAX_GPUS) ? (s->gpus = (int)value, true) : fail(r, "0 to %d GPUs", MAX_GPUS);
	return fail(r, "%s is not known", words[0]);
}

/* The GPUs of a node nobody described: distinct UUIDs that are the same at each start, PCI order, minor = index. */
static void describe(struct scenario *s)
{
	const char *node = getenv("SIMGPU_NODE");
	uint64_t h = 1469598103934665603u;
	for (const char *p = node ? node : "sim"; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
	text(s->driver, sizeof s->driver, "550.54.15");
	s->cuda = 12040;
	s->gpus = 8;
	for (int i = MAX_GPUS; i < MAX_DEVICES; i++) {
		struct gpu *g = &s->gpu[i];
		g->lost_at = g->gone_at = g->reset_required_at = 1e18;
		for (int k = 0; k < KEY_COUNT; k++) add_step(&g->values[k], -1e18, NONE);
	}
	for (int i = 0; i < MAX_GPUS; i++) {
		struct gpu *g = &s->gpu[i];
		static const int buses[] = {0x0f, 0x2d, 0x44, 0x5b, 0x89, 0xa8, 0xc0, 0xd8, 0x10, 0x2e, 0x45, 0x5c, 0x8a, 0xa9, 0xc1, 0xd9};
		text(g->name, sizeof g->name, "NVIDIA H100 80GB HBM3");
		snprintf(g->uuid, sizeof g->uuid, "GPU-%08x-%04x-4%03x-8%03x-%012x", (unsigned)(h >> 32) ^ (unsigned)i * 0x9E3779B1u, (unsigned)(h >> 16 & 0xffff),
			 (unsigned)(h & 0xfff), (unsigned)(h >> 4 & 0xfff), (unsigned)i + 1);
		snprintf(g->serial, sizeof g->serial, "16%010u%d", (unsigned)(h % 1000000000u), i);
		snprintf(g->pci, sizeof g->pci, "00000000:%02X:00.0", buses[i]);
		g->lost_at = g->gone_at = g->reset_required_at = 1e18;
		for (int k = 0; k < KEY_COUNT; k++) add_step(&g->values[k], -1e18, k == K_minor && defaults[k] < 0 ? i : k == K_numa ? i / 4 : defaults[k]);
	}
}

/* Integrals up to each step, so that a counter of many steps costs a binary search. Time 0 is the epoch. */
static bool sum_up(struct scenario *s)
{
	for (int i = 0; i < MAX_DEVICES * KEY_COUNT; i++) {
		struct series *p = &s->gpu[i / KEY_COUNT].values[i % KEY_COUNT];
		p->areas = calloc((size_t)p->n, sizeof *p->areas);
		if (!p->areas) return false;
		for (int n = 1; n < p->n; n++) {
			double from = p->steps[n - 1].t < -1e17 ? 0 : p->steps[n - 1].t;
			p->areas[n] = p->areas[n - 1] + p->steps[n - 1].value * (p->steps[n].t - from);
		}
	}
	return true;
}

static void release(struct scenario *s)
{
	if (!s || __atomic_sub_fetch(&s->users, 1, __ATOMIC_ACQ_REL)) return;
	for (int i = 0; i < MAX_DEVICES * KEY_COUNT; i++) {
		free(s->gpu[i / KEY_COUNT].values[i % KEY_COUNT].steps);
		free(s->gpu[i / KEY_COUNT].values[i % KEY_COUNT].areas);
	}
	free(s);
}

static struct scenario *parse(FILE *file, const char *path)
{
	struct reader r = {.s = calloc(1, sizeof(struct scenario))};
	char line[4096], *words[64];
	if (!r.s) return NULL;
	r.s->users = 1;
	describe(r.s);
	bool good = true;
	while (good && file && fgets(line, sizeof line, file)) {
		r.line++;
		int n = split(line, words, 64);
		good = !n || read_line(&r, words, n);
	}
	if (good && sum_up(r.s)) return r.s;
	fprintf(stderr, "simgpu: %s:%d: %s\n", path, r.line, r.error);
	release(r.s);
	return NULL;
}

static int64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void take_over(struct scenario *fresh)
{
	pthread_mutex_lock(&counting);
	struct scenario *old = current;
	__atomic_store_n(&current, fresh, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&counting);
	release(old);
}

static void reload(void)
{
	const char *path = getenv("SIMGPU_SCENARIO");
	struct stat now;
	if (!path || !*path) {
		if (!current) take_over(parse(NULL, "defaults"));
		return;
	}
	if (stat(path, &now)) {
		if (!current) fprintf(stderr, "simgpu: %s: %s\n", path, strerror(errno));
		return;
	}
	if (current && now.st_ino == seen.st_ino && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
	    now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_size == seen.st_size) return;
	seen = now;
	FILE *file = fopen(path, "r");
	if (!file) return;
	struct scenario *fresh = parse(file, path);
	fclose(file);
	if (fresh) take_over(fresh);
}

bool sim_load(void)
{
	pthread_mutex_lock(&loading);
	reload();
	pthread_mutex_unlock(&loading);
	return current != NULL;
}

void sim_look_away(void)
{
	release(looked_at);
	looked_at = NULL;
}

struct scenario *sim_look_again(void)
{
	int64_t now = monotonic_ns();
	sim_look_away();
	if (now >= __atomic_load_n(&next_check, __ATOMIC_RELAXED) && !pthread_mutex_trylock(&loading)) {
		__atomic_store_n(&next_check, now + CHECK_EVERY_NS, __ATOMIC_RELAXED);
		reload();
		pthread_mutex_unlock(&loading);
	}
	pthread_mutex_lock(&counting);
	looked_at = current;
	__atomic_add_fetch(&looked_at->users, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_unlock(&counting);
	return looked_at;
}

struct scenario *sim_scenario(void) { return looked_at; }

static void before_fork(void) { pthread_mutex_lock(&loading); pthread_mutex_lock(&counting); }
static void after_fork(void) { pthread_mutex_unlock(&counting); pthread_mutex_unlock(&loading); }
__attribute__((constructor)) static void start(void) { pthread_atfork(before_fork, after_fork, after_fork); }
