"""The tables. Times are ``*_ms``, milliseconds since 1970 UTC; other units stand in the names.

``SUMMARY`` says which sums a block and a job's GPU carry as plain columns; the samples themselves are in
``block.samples_z`` and need no column of their own.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)

REVISION = "0001"
"""The migration that makes this schema."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only in a column of the type INTEGER.
_Id = BigInteger().with_variant(Integer, "sqlite")

SUMMARY: dict[str, tuple[str, ...]] = {
    "gpu_util_pct": ("weight_ms", "sum", "max"),
    "mem_util_pct": ("weight_ms", "sum"),
    "mem_used_bytes": ("weight_ms", "sum", "max"),
    "power_mw": ("weight_ms", "sum", "max"),
    "sm_clock_mhz": ("weight_ms", "sum"),
    "temperature_c": ("max",),
}
"""metric → what is kept of it. ``sum`` is Σ(value·dt) in unit·ms, ``weight_ms`` the Σdt that belongs to it."""


def summary_columns() -> list[tuple[str, str, str]]:
    """(column, metric, part) of every sum."""
    return [(f"{metric}_{part}", metric, part) for metric, parts in SUMMARY.items() for part in parts]


def _summary() -> list[Column[float]]:
    return [Column(name, BigInteger if part == "weight_ms" else Double) for name, _, part in summary_columns()]


cluster = Table(
    "cluster",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
)

node = Table(
    "node",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("cluster_id", ForeignKey("cluster.id"), nullable=False),
    Column("name", String(255), nullable=False),
    Column("boot_id", String(64)),
    Column("started_ms", BigInteger),  # when slurmgpud last started
    Column("open_then", Text),  # JSON: the allocations that were open at that time
    Column("newest_ms", BigInteger),  # when the newest segment was made
    UniqueConstraint("cluster_id", "name"),
)

gpu = Table(
    "gpu",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("uuid", String(96), nullable=False, unique=True),
    Column("serial", String(64)),
    Column("name", String(128)),
    Column("memory_bytes", BigInteger),
    Column("compute_capability", String(8)),
    Column("parent_uuid", String(96)),  # of a MIG instance
)

gpu_placement = Table(
    "gpu_placement",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("gpu_id", ForeignKey("gpu.id"), nullable=False),
    Column("node_id", ForeignKey("node.id"), nullable=False),
    Column("nvml_index", Integer),
    Column("minor", Integer),
    Column("ordinal", Integer),  # Slurm's number
    Column("pci_address", String(32)),
    Column("numa_node", Integer, nullable=False),
    Column("driver_version", String(64)),
    Column("cuda_version", String(16)),
    Column("modes", Text),  # JSON: mode → word
    Column("nvlink_peers", Text),  # JSON: UUID → links
    Column("health", String(16), nullable=False),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Index("ix_gpu_placement_gpu_id_first_ms", "gpu_id", "first_ms"),
)

job = Table(  # one run of a job
    "job",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("cluster_id", ForeignKey("cluster.id"), nullable=False),
    Column("raw_job_id", BigInteger, nullable=False),
    Column("restart_count", Integer),
    Column("slurm_start_s", BigInteger),
    Column("sluid", String(32)),
    Column("het_job_id", BigInteger),
    Column("user_name", String(255)),
    Column("uid", BigInteger),
    Column("account", String(255)),
    Column("partition", String(255)),
    Column("nodelist", Text),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger),
    Column("exit_code", Integer),  # a wait status, from the epilogs
    # What Slurm's accounting says
    Column("name", Text),
    Column("array_job_id", BigInteger),
    Column("array_task", BigInteger),
    Column("het_offset", Integer),
    Column("qos", String(255)),
    Column("state", String(32)),
    Column("slurm_exit_code", Integer),
    Column("slurm_exit_signal", Integer),
    Column("submit_s", BigInteger),
    Column("slurm_end_s", BigInteger),
    Column("time_limit_s", BigInteger),
    Column("slurm_gpus", Integer),  # how many Slurm gave it
    Column("asked_ms", BigInteger),  # when Slurm was last asked
    Column("is_final", Boolean, nullable=False, default=False),  # nothing of this will change
    Index("ix_job_raw_job_id_start_ms", "raw_job_id", "start_ms"),
    Index("ix_job_array_job_id", "array_job_id"),
    Index("ix_job_het_job_id", "het_job_id"),
    Index("ix_job_start_ms", "start_ms"),
    Index("ix_job_is_final_asked_ms", "is_final", "asked_ms"),
)

job_node = Table(  # an allocation: a run's time on one node, as the node saw it
    "job_node",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("job_id", ForeignKey("job.id")),  # empty until the allocation's own record is here
    Column("node_id", ForeignKey("node.id"), nullable=False),
    Column("allocation", String(64), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger),
    Column("source", String(16)),
    Column("end_source", String(16)),
    Column("exit_code", Integer),
    Column("widened", Boolean, nullable=False, default=False),  # by Slurm's word: nobody's blocks within are its own
    Column("unresolved", Text),  # JSON: Slurm's words for GPUs that no device answers to
    UniqueConstraint("node_id", "allocation"),
    Index("ix_job_node_job_id", "job_id"),
    Index("ix_job_node_end_ms", "end_ms"),
)

job_gpu = Table(  # a GPU of an allocation, with its totals
    "job_gpu",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("job_node_id", ForeignKey("job_node.id"), nullable=False),
    Column("gpu_id", ForeignKey("gpu.id"), nullable=False),
    Column("ordinal", Integer),
    Column("told", String(16)),  # by mark, processes, epilog or slurm
    Column("settled", Boolean, nullable=False, default=True),  # false: its figures are still to be found in the blocks
    Column("samples", BigInteger, nullable=False, default=0),
    Column("covered_ms", BigInteger, nullable=False, default=0),
    Column("shared_ms", BigInteger, nullable=False, default=0),
    Column("first_block_ms", BigInteger),
    Column("last_block_ms", BigInteger),
    *_summary(),
    Column("energy_mj", BigInteger),
    Column("energy_ms", BigInteger, nullable=False, default=0),
    Column("energy_source", String(8)),
    UniqueConstraint("job_node_id", "gpu_id"),
    Index("ix_job_gpu_gpu_id", "gpu_id"),
    Index("ix_job_gpu_settled", "settled"),
)

block = Table(
    "block",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("gpu_id", ForeignKey("gpu.id"), nullable=False),
    Column("segment_id", ForeignKey("segment.id"), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger, nullable=False),
    Column("owners", SmallInteger, nullable=False),
    Column("job_gpu_id", BigInteger),  # the owner; none: nobody, or several (notes). No foreign key: millions of rows
    Column("samples", Integer, nullable=False),
    Column("covered_ms", BigInteger, nullable=False),
    *_summary(),
    Column("energy_mj", BigInteger),
    Column("energy_source", String(8)),
    Column("notes", Text),  # JSON: missing (metric: cause, samples), dropped (metric: values), shares (owner: part)
    Column("samples_z", LargeBinary),
    Index("ix_block_gpu_id_start_ms", "gpu_id", "start_ms"),
)

event = Table(
    "event",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("node_id", ForeignKey("node.id"), nullable=False),
    Column("gpu_id", ForeignKey("gpu.id")),
    Column("t_ms", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("allocation", String(64)),
    Index("ix_event_node_id_t_ms", "node_id", "t_ms"),
)

segment = Table(  # what has been taken, so that a segment given twice counts once
    "segment",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("node_id", ForeignKey("node.id"), nullable=False),
    Column("stream", String(64), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("taken_ms", BigInteger, nullable=False),
    UniqueConstraint("node_id", "stream", "seq"),
)
