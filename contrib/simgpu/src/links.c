/* NVLink, PCIe traffic, topology, fabric. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define GPU (&sim_scenario()->gpu[g_])

int sim_link_state(int gpu, unsigned link)
{
	double links, state;
	if (sim_is_mig(gpu) || !sim_number(gpu, K_nvlinks, &links) || link >= links || link >= MAX_LINKS) return -1;
	if (sim_scenario()->gpu[gpu].link[link].set) return sim_scenario()->gpu[gpu].link[link].state;
	return sim_number(gpu, K_nvlink_state, &state) ? (int)state : -1;
}

EXPORT int nvmlDeviceGetNvLinkState(void *d, unsigned link, unsigned *out)
{
	CALL(d);
	int state = sim_link_state(g_, link);
	if (state < 0) RETURN(link >= MAX_LINKS ? INVALID_ARGUMENT : NOT_SUPPORTED);
	*out = state == 1 || state == 3;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetNvLinkVersion(void *d, unsigned link, unsigned *out)
{
	double v;
	CALL(d);
	if (sim_link_state(g_, link) < 0 || !sim_number(g_, K_nvlink_version, &v)) RETURN(NOT_SUPPORTED);
	*out = (unsigned)v;
	RETURN(OK);
}

static int far_gpu(int gpu, unsigned link)
{
	const struct gpu *g = &sim_scenario()->gpu[gpu];
	return g->link[link].set ? g->link[link].far_gpu : -1;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned link, unsigned *out)
{
	CALL(d);
	if (sim_link_state(g_, link) < 0) RETURN(NOT_SUPPORTED);
	*out = far_gpu(g_, link) < 0 ? 2 : 0;
	RETURN(OK);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned link, struct pci *out)
{
	CALL(d);
	if (sim_link_state(g_, link) < 0) RETURN(NOT_SUPPORTED);
	int far = far_gpu(g_, link);
	memset(out, 0, sizeof *out);
	if (far >= 0) snprintf(out->bus_id, sizeof out->bus_id, "%s", sim_scenario()->gpu[far].pci);
	else snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0xe0 + link % 4);   /* one of four switches */
	if (sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device) != 3) RETURN(UNKNOWN);
	RETURN(OK);
}

EXPORT int nvmlDeviceGetPcieThroughput(void *d, unsigned counter, unsigned *out)
{
	double v;
	CALL(d);
	if (counter > 1) RETURN(INVALID_ARGUMENT);
	if (!sim_number(g_, counter ? K_pcie_rx_kbps : K_pcie_tx_kbps, &v)) RETURN(NOT_SUPPORTED);
	*out = (unsigned)v;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *d, void *other, unsigned *out)
{
	double a, b;
	CALL(d);
	int second = sim_index_of(other);
	if (second < 0 || !sim_number(g_, K_numa, &a) || !sim_number(second, K_numa, &b)) RETURN(INVALID_ARGUMENT);
	*out = second == g_ ? 0 : a == b ? 40 : 50;
	RETURN(OK);
}

EXPORT int nvmlDeviceGetP2PStatus(void *d, void *other, unsigned index, unsigned *out)
{
	CALL(d);
	if (sim_index_of(other) < 0 || index > 4) RETURN(INVALID_ARGUMENT);
	*out = 0;
	RETURN(OK);
}

struct fabric { unsigned version; unsigned char cluster[16]; unsigned status, clique, state, mask; unsigned char summary; };

static int fabric(int gpu, struct fabric *out)
{
	double state, status, mask, summary;
	if (!sim_number(gpu, K_fabric_state, &state) || !sim_number(gpu, K_fabric_status, &status) ||
	    !sim_number(gpu, K_fabric_health_mask, &mask) || !sim_number(gpu, K_fabric_summary, &summary)) return NOT_SUPPORTED;
	memset(out->cluster, 0, sizeof out->cluster);
	out->status = (unsigned)status;
	out->clique = 0;
	out->state = (unsigned)state;
	out->mask = (unsigned)mask;
	out->summary = (unsigned char)summary;
	return OK;
}

EXPORT int nvmlDeviceGetGpuFabricInfo(void *d, void *out)
{
	struct fabric f;
	CALL(d);
	if ((c_ = fabric(g_, &f))) RETURN(c_);
	memcpy(out, f.cluster, 28);   /* cluster, status, clique, state */
	RETURN(OK);
}

EXPORT int nvmlDeviceGetGpuFabricInfoV(void *d, struct fabric *out)
{
	struct fabric f;
	CALL(d);
	unsigned version = out->version;
	if (version != (36 | 2u << 24) && version != (40 | 3u << 24)) RETURN(VERSION_MISMATCH);
	if ((c_ = fabric(g_, &f))) RETURN(c_);
	f.version = version;
	memcpy(out, &f, version >> 24 == 3 ? sizeof f : 36);
	RETURN(OK);
}
