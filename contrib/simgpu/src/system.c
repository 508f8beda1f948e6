/* Opening the library, the system's versions, finding GPUs and who they are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define S sim_scenario()
#define GPU (&S->gpu[g_])

static int put(char *out, unsigned size, const char *text)
{
	if (!out) return INVALID_ARGUMENT;
	if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
	strcpy(out, text);
	return OK;
}

static int init(const char *function)
{
	int gpu = -1;
	if (!sim_load()) return sim_leave(function, -1, UNKNOWN);
	__atomic_fetch_add(&sim_init_count, 1, __ATOMIC_RELAXED);
	int code = sim_enter(function, NULL, &gpu, true);
	if (code) __atomic_fetch_sub(&sim_init_count, 1, __ATOMIC_RELAXED);
	return sim_leave(function, -1, code);
}

EXPORT int nvmlInit_v2(void) { return init("nvmlInit"); }
EXPORT int nvmlInit(void) { return init("nvmlInit"); }
EXPORT int nvmlInitWithFlags(unsigned flags) { (void)flags; return init("nvmlInit"); }

EXPORT int nvmlShutdown(void)
{
	CALL(NULL);
	__atomic_fetch_sub(&sim_init_count, 1, __ATOMIC_RELAXED);
	RETURN(OK);
}

EXPORT const char *nvmlErrorString(int code)
{
	static const char *const words[] = {
		"Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
		"Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
		"NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
		"GPU access blocked by the operating system", "Driver/library version mismatch", "In use by another client",
		"Insufficient Memory", "No data", "vGPU ECC not supported", "Insufficient Resources", "Frequency not supported",
		"Argument version mismatch", "Deprecated", "Not Ready", "No GPUs were found", "Invalid State", "Reset type not supported"};
	return code >= 0 && code < (int)(sizeof words / sizeof *words) ? words[code] : "Unknown Error";
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) { CALL(NULL); RETURN(put(out, size, S->driver)); }

EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
	char text[96];
	CALL(NULL);
	snprintf(text, sizeof text, "%d.%s", S->cuda / 1000, S->driver);
	RETURN(put(out, size, text));
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *out) { CALL(NULL); *out = S->cuda; RETURN(OK); }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out) { CALL(NULL); *out = S->cuda; RETURN(OK); }

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
	CALL(NULL);
	for (int i = 0; i < S->gpus; i++)
		for (int p = 0; p < S->gpu[i].processes; p++)
			if (S->gpu[i].process[p].pid == (int)pid) RETURN(put(out, size, S->gpu[i].process[p].name));
	RETURN(NOT_FOUND);
}

static int count(unsigned *out) { *out = (unsigned)sim_visible_count(S); return OK; }
EXPORT int nvmlDeviceGetCount(unsigned *out) { CALL(NULL); RETURN(count(out)); }
EXPORT int nvmlDeviceGetCount_v2(unsigned *out) { CALL(NULL); RETURN(count(out)); }

/* Index i among the GPUs that are still counted; -1: there is none. */
static int by_index(unsigned index)
{
	const struct scenario *s = S;
	double t = sim_now(s) - s->epoch;
	for (int i = 0, n = 0; i < s->gpus; i++)
		if (t < s->gpu[i].gone_at && n++ == (int)index) return i;
	return -1;
}

static int by_uuid(const char *uuid)
{
	for (int i = 0; i < MAX_GPUS + S->migs; i++)
		if (sim_exists(S, i) && !strcmp(S->gpu[i].uuid, uuid)) return i;
	return -1;
}

static int by_serial(const char *serial)
{
	for (int i = 0; i < S->gpus; i++)
		if (!strcmp(S->gpu[i].serial, serial)) return i;
	return -1;
}

/* In any case, with any number of digits in the domain, with or without the function. */
static int by_pci(const char *text)
{
	unsigned mine[3], other[3];
	for (int i = 0; i < S->gpus && sscanf(text, "%x:%x:%x", &other[0], &other[1], &other[2]) == 3; i++)
		if (sscanf(S->gpu[i].pci, "%x:%x:%x", &mine[0], &mine[1], &mine[2]) == 3 && !memcmp(mine, other, sizeof mine)) return i;
	return -1;
}

#define FIND(argument, finder, missing) \
	do { \
		CALL(NULL); \
		g_ = finder(argument); \
		RETURN(g_ < 0 ? (missing) : sim_found(__func__, g_, out)); \
	} while (0)

EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **out) { FIND(index, by_index, INVALID_ARGUMENT); }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) { FIND(index, by_index, INVALID_ARGUMENT); }
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) { FIND(uuid, by_uuid, NOT_FOUND); }
EXPORT int nvmlDeviceGetHandleBySerial(const char *serial, void **out) { FIND(serial, by_serial, NOT_FOUND); }
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *pci, void **out) { FIND(pci, by_pci, NOT_FOUND); }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out) { FIND(pci, by_pci, NOT_FOUND); }

/* These still answer for a GPU that is lost. */
EXPORT int nvmlDeviceGetName(void *d, char *out, unsigned size) { CALL_ALIVE(d); RETURN(put(out, size, GPU->name)); }
EXPORT int nvmlDeviceGetUUID(void *d, char *out, unsigned size) { CALL_ALIVE(d); RETURN(put(out, size, GPU->uuid)); }

EXPORT int nvmlDeviceGetSerial(void *d, char *out, unsigned size)
{
	CALL(d);
	RETURN(GPU->serial[0] && strcmp(GPU->serial, "na") ? put(out, size, GPU->serial) : NOT_SUPPORTED);
}

EXPORT int nvmlDeviceGetIndex(void *d, unsigned *out)
{
	CALL_ALIVE(d);
	const struct scenario *s = S;
	double t = sim_now(s) - s->epoch;
	*out = 0;
	for (int i = 0; i < g_; i++) *out += t < s->gpu[i].gone_at;
	RETURN(OK);
}

struct pci_v2 { char bus_id[16]; unsigned domain, bus, device, id, subsystem, reserved[4]; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

static int pci_info(int g_, struct pci *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->bus_id, sizeof out->bus_id, "%s", GPU->pci);
	if (sscanf(GPU->pci, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3) return UNKNOWN;
	snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", out->domain & 0xffff, out->bus & 0xff, out->device & 0xff);
	out->id = 0x233010de;
	out->subsystem = 0x16c110de;
	return OK;
}

static int pci_info_v2(int g_, struct pci_v2 *out)
{
	struct pci info;
	int code = pci_info(g_, &info);
	memset(out, 0, sizeof *out);
	memcpy(out, &info, offsetof(struct pci_v2, reserved));   /* they begin alike */
	return code;
}

EXPORT int nvmlDeviceGetPciInfo(void *d, struct pci_v2 *out) { CALL_ALIVE(d); RETURN(pci_info_v2(g_, out)); }
EXPORT int nvmlDeviceGetPciInfo_v2(void *d, struct pci_v2 *out) { CALL_ALIVE(d); RETURN(pci_info_v2(g_, out)); }
EXPORT int nvmlDeviceGetPciInfo_v3(void *d, struct pci *out) { CALL_ALIVE(d); RETURN(pci_info(g_, out)); }
