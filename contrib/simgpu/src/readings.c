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

static bool mig_parent(int gpu)
{
	double mode;
	return !sim_is_mig(gpu) && sim_number(gpu, K_mig_mode, &mode) && mode > 0;
}

EXPORT int nvmlDeviceGetUtilizationRates(void *d, unsigned *out)
{
	CALL(d);
	if (mig_parent(g_)) RETURN(NOT_SUPPORTED);
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
enum scope { BOARD, LINK };
static const struct { unsigned id; enum key key; unsigned type; enum scope scope; } fields[] = {
	{1, K_ecc_mode, UINT, BOARD}, {3, K_ecc_corrected_volatile, ULLONG, BOARD}, {4, K_ecc_uncorrected_volatile, ULLONG, BOARD},
	{5, K_ecc_corrected_aggregate, ULLONG, BOARD}, {6, K_ecc_uncorrected_aggregate, ULLONG, BOARD},
	{29, K_retired_sbe, UINT, BOARD}, {30, K_retired_dbe, UINT, BOARD}, {31, K_retired_pending, UINT, BOARD},
	{74, K_violation_power_ns, ULLONG, BOARD}, {75, K_violation_thermal_ns, ULLONG, BOARD},
	{76, K_violation_sync_boost_ns, ULLONG, BOARD}, {77, K_violation_board_ns, ULLONG, BOARD},
	{78, K_violation_low_utilization_ns, ULLONG, BOARD}, {79, K_violation_reliability_ns, ULLONG, BOARD},
	{82, K_mem_temperature_c, UINT, BOARD}, {83, K_energy_mj, ULLONG, BOARD}, {91, K_nvlinks, UINT, BOARD},
	{94, K_pcie_replays, UINT, BOARD}, {138, K_nvlink_tx_kib, ULLONG, LINK}, {139, K_nvlink_rx_kib, ULLONG, LINK},
	{142, K_remap_corrected, UINT, BOARD}, {143, K_remap_uncorrected, UINT, BOARD}, {144, K_remap_pending, UINT, BOARD},
	{145, K_remap_failed, UINT, BOARD}, {161, K_nvlink_replay_errors, ULLONG, LINK},
	{162, K_nvlink_recovery_errors, ULLONG, LINK}, {163, K_nvlink_crc_errors, ULLONG, LINK}, {165, K_nvlink_state, UINT, LINK}, {202, K_nvlink_tx_bytes, ULLONG, LINK},
	{204, K_nvlink_rx_bytes, ULLONG, LINK}, {214, K_nvlink_recoveries_failed, ULLONG, LINK},
	{221, K_nvlink_symbol_errors, ULLONG, LINK},
	{185, K_power_mw, UINT, BOARD}, {186, K_power_instant_mw, UINT, BOARD}, {190, K_power_limit_mw, UINT, BOARD},
	{191, K_energy_mj, ULLONG, BOARD}, {197, K_pcie_tx_bytes, ULLONG, BOARD}, {198, K_pcie_rx_bytes, ULLONG, BOARD},
	{230, K_recovery_action, UINT, BOARD}, {269, K_violation_sw_thermal_ns, ULLONG, BOARD},
	{270, K_violation_hw_thermal_ns, ULLONG, BOARD}, {271, K_violation_power_brake_ns, ULLONG, BOARD}};

static int field_value(int gpu, struct field *f, size_t row)
{
	double v, links = 1;
	if (fields[row].scope == LINK && f->scope != 0xffffffffu) {
		int state = sim_link_state(gpu, f->scope);
		if (state < 0) return NOT_SUPPORTED;
		if (f->id == 165) { f->type = UINT; f->value.ull = 0; f->value.u = (unsigned)state; return OK; }
		if (!sim_number(gpu, K_nvlinks, &links) || links < 1) return NOT_SUPPORTED;   /* a link's part of the sum */
	} else if (f->id == 165) return NOT_SUPPORTED;
	/* Where the instant value is not told apart, it is the same. */
	bool known = sim_number(gpu, fields[row].key, &v) || (f->id == 186 && sim_number(gpu, K_power_mw, &v));
	if (!known) return NOT_SUPPORTED;
	v /= links;
	f->type = fields[row].type;
	f->value.ull = 0;
	if (f->type == UINT) f->value.u = (unsigned)llround(v);
	else f->value.ull = (unsigned long long)floor(v);
	return OK;
}

EXPORT int nvmlDeviceGetFieldValues(void *d, int count, struct field *out)
{
	CALL(d);
	for (int i = 0; i < count; i++) {
		unsigned long long found = out[i].value.ull;
		out[i].code = NOT_SUPPORTED;
		out[i].timestamp = (long long)(sim_now(sim_scenario()) * 1e6);
		for (size_t row = 0; row < sizeof fields / sizeof *fields; row++)
			if (fields[row].id == out[i].id) out[i].code = field_value(g_, &out[i], row);
		const struct fault *fault = sim_field_fault(g_, (int)out[i].id);
		if (!fault) continue;
		if (fault->has_code) out[i].code = fault->code;
		if (fault->add) out[i].value.ull += found;   /* as some drivers do */
		if (fault->type >= 0) out[i].type = (unsigned)fault->type;
		if (fault->no_time) out[i].timestamp = 0;
	}
	RETURN(OK);
}

struct margin { unsigned version; int value; };

EXPORT int nvmlDeviceGetMarginTemperature(void *d, struct margin *out)
{
	CALL(d);
	if (out->version != (sizeof *out | 1u << 24)) RETURN(VERSION_MISMATCH);
	RETURN(whole(g_, K_temperature_margin_c, (unsigned *)&out->value));
}
