/* ECC by place, retired pages, remapped rows, repair. */
#include <math.h>

#include "sim.h"

static bool count_of(int gpu, enum key key, unsigned long long *out)
{
	double v;
	if (!sim_number(gpu, key, &v)) return false;
	*out = (unsigned long long)v;
	return true;
}

static bool flag(int gpu, enum key key, unsigned *out)
{
	unsigned long long v;
	if (!count_of(gpu, key, &v)) return false;
	*out = (unsigned)v;
	return true;
}

enum { DRAM = 2, SRAM = 7 };   /* nvmlMemoryLocation_t, Ampere and later */

EXPORT int nvmlDeviceGetMemoryErrorCounter(void *d, unsigned type, unsigned counter, unsigned place, unsigned long long *out)
{
	static const enum key keys[2][2][2] = {
		{{K_ecc_cor_dram_volatile, K_ecc_cor_dram_aggregate}, {K_ecc_unc_dram_volatile, K_ecc_unc_dram_aggregate}},
		{{K_ecc_cor_sram_volatile, K_ecc_cor_sram_aggregate}, {K_ecc_unc_sram_volatile, K_ecc_unc_sram_aggregate}}};
	CALL(d);
	if (type > 1 || counter > 1) RETURN(INVALID_ARGUMENT);
	if (place == 1 && type == 1 && counter == 0) RETURN(count_of(g_, K_ecc_unc_l2_volatile, out) ? OK : NOT_SUPPORTED);
	if (place != DRAM && place != SRAM) RETURN(NOT_SUPPORTED);
	RETURN(count_of(g_, keys[place == SRAM][type][counter], out) ? OK : NOT_SUPPORTED);
}

struct sram { unsigned version; unsigned long long agg_parity, agg_secded, agg_cor, vol_parity, vol_secded, vol_cor, bucket[5]; unsigned exceeded; };

EXPORT int nvmlDeviceGetSramEccErrorStatus(void *d, struct sram *out)
{
	CALL(d);
	if (out->version != (sizeof *out | 1u << 24)) RETURN(VERSION_MISMATCH);
	if (!flag(g_, K_sram_threshold_exceeded, &out->exceeded)) RETURN(NOT_SUPPORTED);
	count_of(g_, K_ecc_unc_sram_aggregate, &out->agg_secded);
	count_of(g_, K_ecc_unc_sram_volatile, &out->vol_secded);
	count_of(g_, K_ecc_cor_sram_aggregate, &out->agg_cor);
	count_of(g_, K_ecc_cor_sram_volatile, &out->vol_cor);
	RETURN(OK);
}

EXPORT int nvmlDeviceGetRemappedRows(void *d, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *failed)
{
	CALL(d);
	bool all = flag(g_, K_remap_corrected, cor) && flag(g_, K_remap_uncorrected, unc) && flag(g_, K_remap_pending, pending) &&
		   flag(g_, K_remap_failed, failed);
	RETURN(all ? OK : NOT_SUPPORTED);
}

EXPORT int nvmlDeviceGetRowRemapperHistogram(void *d, unsigned *out)
{
	CALL(d);
	bool all = flag(g_, K_remap_banks_max, &out[0]) && flag(g_, K_remap_banks_high, &out[1]) && flag(g_, K_remap_banks_partial, &out[2]) &&
		   flag(g_, K_remap_banks_low, &out[3]) && flag(g_, K_remap_banks_none, &out[4]);
	RETURN(all ? OK : NOT_SUPPORTED);
}

EXPORT int nvmlDeviceGetRetiredPages(void *d, unsigned cause, unsigned *count, unsigned long long *out)
{
	unsigned n, room = *count;
	CALL(d);
	if (cause > 1) RETURN(INVALID_ARGUMENT);
	if (!flag(g_, cause ? K_retired_dbe : K_retired_sbe, &n)) RETURN(NOT_SUPPORTED);
	*count = n;
	if (n > room) RETURN(INSUFFICIENT_SIZE);
	for (unsigned i = 0; i < n && out; i++) out[i] = 0x1000ull * (i + 1);
	RETURN(OK);
}

EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(void *d, unsigned *out)
{
	CALL(d);
	RETURN(flag(g_, K_retired_pending, out) ? OK : NOT_SUPPORTED);
}
