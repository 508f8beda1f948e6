/* The numbers of a GPU that a scenario sets, with what an H100 that idles says. One row here is one key in the file. */
#define KEYS \
	X(gpu_util_pct, 0) X(mem_util_pct, 0) X(enc_util_pct, 0) X(dec_util_pct, 0) \
	X(memory_bytes, 85520809984.0) X(mem_used_bytes, 524288000.0) X(mem_reserved_bytes, 655360000.0) \
	X(bar1_total_bytes, 137438953472.0) X(bar1_used_bytes, 3145728.0) \
	X(power_mw, 71000) X(power_limit_mw, 700000) X(energy_mj, 0) \
	X(temperature_c, 32) X(mem_temperature_c, 40) X(sm_clock_mhz, 345) X(gr_clock_mhz, 345) X(mem_clock_mhz, 2619) \
	X(video_clock_mhz, 765) X(max_sm_clock_mhz, 1980) X(max_mem_clock_mhz, 2619) X(event_reasons, 1) X(pstate, 0) \
	X(fan_pct, NONE) X(minor, -1) X(numa, -1) X(persistence, 1) X(compute_mode, 0) X(ecc_mode, 1) X(mig_mode, 0) \
	X(display_active, 0) X(display_mode, 1) X(cc_major, 9) X(cc_minor, 0) X(architecture, 9) X(brand, 14) \
	X(cores, 16896) X(nvlinks, 18) X(pcie_gen, 5) X(pcie_width, 16) X(pcie_max_gen, 5) X(pcie_max_width, 16) \
	X(pcie_replays, 0) X(ecc_corrected_volatile, 0) X(ecc_uncorrected_volatile, 0) \
	X(ecc_corrected_aggregate, 0) X(ecc_uncorrected_aggregate, 0) X(recovery_action, 0)
