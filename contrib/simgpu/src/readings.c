/* Readings of one GPU. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "sim.h"

static int whole(int gpu, enum key key, unsigned *out)
{
	double v;
	if (!sim_number(gpu, key, &v)) return NOT_SUPPORTED;
	*out = (unsigned)llround(v);
	return OK;
}

#define NUMBER(function, key) EXPORT int function(void *d, unsigned *out) { CALL(d); RETURN(whole(g_, K_##key, out)); }
NUMBER(nvmlDeviceGetPowerUsage, power_mw)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
NUMBER(nvmlDeviceGetPowerManagementLimit, power_limit_mw)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, power_limit_mw)
NUMBER(nvmlDeviceGetFanSpeed, fan_pct)
NUMBER(nvmlDeviceGetPerformanceState, pstate)
NUMBER(nvmlDeviceGetPowerState, pstate)
NUMBER(nvmlDeviceGetPersistenceMode, persistence)
NUMBER(nvmlDeviceGetComputeMode, compute_mode)
NUMBER(nvmlDeviceGetDisplayActive, display_active)
NUMBER(nvmlDeviceGetDisplayMode, display_mode)
NUMBER(nvmlDeviceGetBrand, brand)
NUMBER(nvmlDeviceGetArchitecture, architecture)
NUMBER(nvmlDeviceGetNumGpuCores, cores)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_gen)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_max_gen)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_max_gen)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_max_width)
NUMBER(nvmlDeviceGetPcieReplayCounter, pcie_replays)

EXPORT int nvmlDeviceGetMinorNumber(void *d, unsigned *out)
{
	CALL_ALIVE(d);
	RETURN(whole(g_, K_minor, out));
}

EXPORT int nvmlDeviceGetNumaNodeId(void *d, unsigned *out)
{
	double v;
	CALL(d);
	if (!sim_number(g_, K_numa, &v) || v < 0) RETURN(NOT_SUPPORTED);
	*out = (unsigned)v;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *out)
{
	double v;
	CALL(d);
	if (!sim_number(g_, K_energy_mj, &v)) RETURN(NOT_SUPPORTED);
	*out = (unsigned long long)floor(v);
	RETURN(OK);
}

EXPORT int nvmlDeviceGetUtilizationRates(void *d, unsigned *out)
{
	CALL(d);
	c_ = whole(g_, K_gpu_util_pct, &out[0]);
	RETURN(c_ ? c_ : whole(g_, K_mem_util_pct, &out[1]));
}

static int engine(int gpu, enum key key, unsigned *out, unsigned *period)
{
	*period = 167000;
	return whole(gpu, key, out);
}
EXPORT int nvmlDeviceGetEncoderUtilization(void *d, unsigned *out, unsigned *us) { CALL(d); RETURN(engine(g_, K_enc_util_pct, out, us)); }
EXPORT int nvmlDeviceGetDecoderUtilization(void *d, unsigned *out, unsigned *us) { CALL(d); RETURN(engine(g_, K_dec_util_pct, out, us)); }

struct memory { double total, reserved, used; };

static int memory_of(int gpu, struct memory *m)
{
	bool known = sim_number(gpu, K_memory_bytes, &m->total) && sim_number(gpu, K_mem_used_bytes, &m->used);
	if (!sim_number(gpu, K_mem_reserved_bytes, &m->reserved)) m->reserved = 0;
	return known ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *out)   /* total, free, used: used holds the reserve, too */
{
	struct memory m;
	CALL(d);
	if ((c_ = memory_of(g_, &m))) RETURN(c_);
	out[0] = (unsigned long long)m.total;
	out[2] = (unsigned long long)(m.used + m.reserved);
	out[1] = out[0] > out[2] ? out[0] - out[2] : 0;
	RETURN(OK);
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *d, struct memory_v2 *out)
{
	struct memory m;
	CALL(d);
	if (out->version != (sizeof *out | 2u << 24)) RETURN(VERSION_MISMATCH);
	if ((c_ = memory_of(g_, &m))) RETURN(c_);
	out->total = (unsigned long long)m.total;
	out->reserved = (unsigned long long)m.reserved;
	out->used = (unsigned long long)m.used;
	out->free = m.total > m.used + m.reserved ? (unsigned long long)(m.total - m.used - m.reserved) : 0;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(void *d, unsigned long long *out)
{
	double total, used;
	CALL(d);
	if (!sim_number(g_, K_bar1_total_bytes, &total) || !sim_number(g_, K_bar1_used_bytes, &used)) RETURN(NOT_SUPPORTED);
	out[0] = (unsigned long long)total;
	out[1] = (unsigned long long)(total - used);
	out[2] = (unsigned long long)used;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetTemperature(void *d, unsigned sensor, unsigned *out)
{
	CALL(d);
	RETURN(sensor ? INVALID_ARGUMENT : whole(g_, K_temperature_c, out));
}

struct temperature { unsigned version, sensor; int value; };

EXPORT int nvmlDeviceGetTemperatureV(void *d, struct temperature *out)
{
	CALL(d);
	if (out->version != (sizeof *out | 1u << 24)) RETURN(VERSION_MISMATCH);
	RETURN(out->sensor ? INVALID_ARGUMENT : whole(g_, K_temperature_c, (unsigned *)&out->value));
}

EXPORT int nvmlDeviceGetTemperatureThreshold(void *d, unsigned kind, unsigned *out)
{
	static const unsigned limits[] = {92, 89, 95, 87};
	CALL(d);
	if (kind > 3) RETURN(NOT_SUPPORTED);
	*out = limits[kind];
	RETURN(OK);
}

static int clock_of(int gpu, unsigned kind, unsigned *out)
{
	static const enum key keys[] = {K_gr_clock_mhz, K_sm_clock_mhz, K_mem_clock_mhz, K_video_clock_mhz};
	return kind > 3 ? INVALID_ARGUMENT : whole(gpu, keys[kind], out);
}

EXPORT int nvmlDeviceGetClockInfo(void *d, unsigned kind, unsigned *out) { CALL(d); RETURN(clock_of(g_, kind, out)); }

EXPORT int nvmlDeviceGetMaxClockInfo(void *d, unsigned kind, unsigned *out)
{
	CALL(d);
	RETURN(kind > 3 ? INVALID_ARGUMENT : whole(g_, kind == 2 ? K_max_mem_clock_mhz : K_max_sm_clock_mhz, out));
}

static int reasons(int gpu, unsigned long long *out)
{
	double v;
	if (!sim_number(gpu, K_event_reasons, &v)) return NOT_SUPPORTED;
	*out = (unsigned long long)v;
	return OK;
}
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *out) { CALL(d); RETURN(reasons(g_, out)); }
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *out) { CALL(d); RETURN(reasons(g_, out)); }

static int modes(int gpu, enum key key, unsigned *current, unsigned *pending)
{
	int code = whole(gpu, key, current);
	if (!code) *pending = *current;
	return code;
}
EXPORT int nvmlDeviceGetEccMode(void *d, unsigned *current, unsigned *pending) { CALL(d); RETURN(modes(g_, K_ecc_mode, current, pending)); }
EXPORT int nvmlDeviceGetMigMode(void *d, unsigned *current, unsigned *pending) { CALL(d); RETURN(modes(g_, K_mig_mode, current, pending)); }

EXPORT int nvmlDeviceGetTotalEccErrors(void *d, unsigned type, unsigned counter, unsigned long long *out)
{
	static const enum key keys[2][2] = {{K_ecc_corrected_volatile, K_ecc_corrected_aggregate},
					    {K_ecc_uncorrected_volatile, K_ecc_uncorrected_aggregate}};
	double v;
	CALL(d);
	if (type > 1 || counter > 1) RETURN(INVALID_ARGUMENT);
	if (!sim_number(g_, keys[type][counter], &v)) RETURN(NOT_SUPPORTED);
	*out = (unsigned long long)v;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor)
{
	CALL(d);
	if ((c_ = whole(g_, K_cc_major, (unsigned *)major))) RETURN(c_);
	RETURN(whole(g_, K_cc_minor, (unsigned *)minor));
}

/* nvmlFieldValue_t: each field has its own code, type and value; the call succeeds all the same. */
struct field { unsigned id, scope; long long timestamp, latency_us; unsigned type; int code; union { double d; unsigned u; unsigned long long ull; } value; };
enum { DOUBLE, UINT, ULONG, ULLONG };
static const struct { unsigned id; enum key key; unsigned type; } fields[] = {
	{1, K_ecc_mode, UINT}, {3, K_ecc_corrected_volatile, ULLONG}, {4, K_ecc_uncorrected_volatile, ULLONG},
	{5, K_ecc_corrected_aggregate, ULLONG}, {6, K_ecc_uncorrected_aggregate, ULLONG}, {82, K_mem_temperature_c, UINT},
	{83, K_energy_mj, ULLONG}, {91, K_nvlinks, UINT}, {94, K_pcie_replays, UINT}, {185, K_power_mw, UINT},
	{186, K_power_mw, UINT}, {190, K_power_limit_mw, UINT}, {191, K_energy_mj, ULLONG}, {230, K_recovery_action, UINT}};

EXPORT int nvmlDeviceGetFieldValues(void *d, int count, struct field *out)
{
	CALL(d);
	for (int i = 0; i < count; i++) {
		double v;
		out[i].code = NOT_SUPPORTED;
		out[i].timestamp = (long long)(sim_now(sim_scenario()) * 1e6);
		for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
			if (fields[f].id != out[i].id || !sim_number(g_, fields[f].key, &v)) continue;
			out[i].code = OK;
			out[i].type = fields[f].type;
			out[i].value.ull = 0;
			if (fields[f].type == UINT) out[i].value.u = (unsigned)llround(v);
			else out[i].value.ull = (unsigned long long)floor(v);
		}
		int fault = sim_field_fault(g_, (int)out[i].id);
		if (fault) out[i].code = fault;
	}
	RETURN(OK);
}
