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
	X(ecc_corrected_aggregate, 0) X(ecc_uncorrected_aggregate, 0) X(recovery_action, 0) \
	X(power_instant_mw, NONE) X(enforced_power_limit_mw, NONE) X(temperature_margin_c, 55) \
	X(ecc_cor_dram_volatile, 0) X(ecc_unc_dram_volatile, 0) X(ecc_cor_sram_volatile, 0) X(ecc_unc_sram_volatile, 0) \
	X(ecc_cor_dram_aggregate, 0) X(ecc_unc_dram_aggregate, 0) X(ecc_cor_sram_aggregate, 0) X(ecc_unc_sram_aggregate, 0) \
	X(sram_threshold_exceeded, 0) X(retired_sbe, NONE) X(retired_dbe, NONE) X(retired_pending, NONE) \
	X(remap_corrected, 0) X(remap_uncorrected, 0) X(remap_pending, 0) X(remap_failed, 0) X(remap_banks_max, 640) \
	X(remap_banks_high, 0) X(remap_banks_partial, 0) X(remap_banks_low, 0) X(remap_banks_none, 0) \
	X(pcie_tx_kbps, 0) X(pcie_rx_kbps, 0) X(pcie_tx_bytes, 0) X(pcie_rx_bytes, 0) \
	X(violation_power_ns, 0) X(violation_thermal_ns, 0) X(violation_sync_boost_ns, 0) X(violation_board_ns, 0) \
	X(violation_low_utilization_ns, 0) X(violation_reliability_ns, 0) X(violation_sw_thermal_ns, 0) \
	X(violation_hw_thermal_ns, 0) X(violation_power_brake_ns, 0) \
	X(nvlink_tx_kib, 0) X(nvlink_rx_kib, 0) X(nvlink_replay_errors, 0) X(nvlink_recovery_errors, 0) X(nvlink_crc_errors, 0) \
	X(nvlink_tx_bytes, NONE) X(nvlink_rx_bytes, NONE) X(nvlink_recoveries_failed, NONE) X(nvlink_symbol_errors, NONE) \
	X(ecc_unc_l2_volatile, NONE) X(nvlink_state, 1) X(nvlink_version, 7) X(fabric_state, 3) X(fabric_status, 0) X(fabric_health_mask, 43690) X(fabric_summary, 1) \
	X(gpm_supported, 1) X(graphics_active_pct, 0) X(sm_active_pct, 0) X(sm_occupancy_pct, 0) X(tensor_active_pct, 0) \
	X(dram_active_pct, 0) X(fp64_active_pct, 0) X(fp32_active_pct, 0) X(fp16_active_pct, 0) X(integer_active_pct, 0) \
	X(gpm_pcie_tx_mibps, 0) X(gpm_pcie_rx_mibps, 0) X(gpm_nvlink_tx_mibps, 0) X(gpm_nvlink_rx_mibps, 0)
