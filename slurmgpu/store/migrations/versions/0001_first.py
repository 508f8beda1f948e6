"""The first schema: who owned which GPU, and what the GPU did."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cluster",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster")),
        sa.UniqueConstraint("name", name=op.f("uq_cluster_name")),
    )
    op.create_table(
        "gpu",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("uuid", sa.String(length=96), nullable=False),
        sa.Column("serial", sa.String(length=64), nullable=True),
        sa.Column("name", sa.String(length=128), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("compute_capability", sa.String(length=8), nullable=True),
        sa.Column("parent_uuid", sa.String(length=96), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu")),
        sa.UniqueConstraint("uuid", name=op.f("uq_gpu_uuid")),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("raw_job_id", sa.BigInteger(), nullable=False),
        sa.Column("restart_count", sa.Integer(), nullable=True),
        sa.Column("slurm_start_s", sa.BigInteger(), nullable=True),
        sa.Column("sluid", sa.String(length=32), nullable=True),
        sa.Column("het_job_id", sa.BigInteger(), nullable=True),
        sa.Column("user_name", sa.String(length=255), nullable=True),
        sa.Column("uid", sa.BigInteger(), nullable=True),
        sa.Column("account", sa.String(length=255), nullable=True),
        sa.Column("partition", sa.String(length=255), nullable=True),
        sa.Column("nodelist", sa.Text(), nullable=True),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("array_job_id", sa.BigInteger(), nullable=True),
        sa.Column("array_task", sa.BigInteger(), nullable=True),
        sa.Column("het_offset", sa.Integer(), nullable=True),
        sa.Column("qos", sa.String(length=255), nullable=True),
        sa.Column("state", sa.String(length=32), nullable=True),
        sa.Column("slurm_exit_code", sa.Integer(), nullable=True),
        sa.Column("slurm_exit_signal", sa.Integer(), nullable=True),
        sa.Column("submit_s", sa.BigInteger(), nullable=True),
        sa.Column("slurm_end_s", sa.BigInteger(), nullable=True),
        sa.Column("time_limit_s", sa.BigInteger(), nullable=True),
        sa.Column("slurm_gpus", sa.Integer(), nullable=True),
        sa.Column("asked_ms", sa.BigInteger(), nullable=True),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_job_cluster_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index("ix_job_array_job_id", "job", ["array_job_id"], unique=False)
    op.create_index("ix_job_het_job_id", "job", ["het_job_id"], unique=False)
    op.create_index("ix_job_is_final_asked_ms", "job", ["is_final", "asked_ms"], unique=False)
    op.create_index("ix_job_raw_job_id_start_ms", "job", ["raw_job_id", "start_ms"], unique=False)
    op.create_index("ix_job_start_ms", "job", ["start_ms"], unique=False)
    op.create_table(
        "node",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("open_then", sa.Text(), nullable=True),
        sa.Column("newest_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["cluster_id"], ["cluster.id"], name=op.f("fk_node_cluster_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
        sa.UniqueConstraint("cluster_id", "name", name=op.f("uq_node_cluster_id")),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("gpu_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("t_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("allocation", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["gpu_id"], ["gpu.id"], name=op.f("fk_event_gpu_id")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_event_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index("ix_event_node_id_t_ms", "event", ["node_id", "t_ms"], unique=False)
    op.create_table(
        "gpu_placement",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("gpu_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("nvml_index", sa.Integer(), nullable=True),
        sa.Column("minor", sa.Integer(), nullable=True),
        sa.Column("ordinal", sa.Integer(), nullable=True),
        sa.Column("pci_address", sa.String(length=32), nullable=True),
        sa.Column("numa_node", sa.Integer(), nullable=False),
        sa.Column("driver_version", sa.String(length=64), nullable=True),
        sa.Column("cuda_version", sa.String(length=16), nullable=True),
        sa.Column("modes", sa.Text(), nullable=True),
        sa.Column("nvlink_peers", sa.Text(), nullable=True),
        sa.Column("health", sa.String(length=16), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["gpu_id"], ["gpu.id"], name=op.f("fk_gpu_placement_gpu_id")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_gpu_placement_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu_placement")),
    )
    op.create_index("ix_gpu_placement_gpu_id_first_ms", "gpu_placement", ["gpu_id", "first_ms"], unique=False)
    op.create_table(
        "job_node",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("node_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("allocation", sa.String(length=64), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.String(length=16), nullable=True),
        sa.Column("end_source", sa.String(length=16), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("widened", sa.Boolean(), nullable=False),
        sa.Column("unresolved", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_node_job_id")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_job_node_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_node")),
        sa.UniqueConstraint("node_id", "allocation", name=op.f("uq_job_node_node_id")),
    )
    op.create_index("ix_job_node_end_ms", "job_node", ["end_ms"], unique=False)
    op.create_index("ix_job_node_job_id", "job_node", ["job_id"], unique=False)
    op.create_table(
        "segment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("stream", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("taken_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_segment_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segment")),
        sa.UniqueConstraint("node_id", "stream", "seq", name=op.f("uq_segment_node_id")),
    )
    op.create_table(
        "block",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("gpu_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("segment_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.Column("owners", sa.SmallInteger(), nullable=False),
        sa.Column("job_gpu_id", sa.BigInteger(), nullable=True),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("covered_ms", sa.BigInteger(), nullable=False),
        sa.Column("gpu_util_pct_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("gpu_util_pct_sum", sa.Double(), nullable=True),
        sa.Column("gpu_util_pct_max", sa.Double(), nullable=True),
        sa.Column("mem_util_pct_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("mem_util_pct_sum", sa.Double(), nullable=True),
        sa.Column("mem_used_bytes_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("mem_used_bytes_sum", sa.Double(), nullable=True),
        sa.Column("mem_used_bytes_max", sa.Double(), nullable=True),
        sa.Column("power_mw_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("power_mw_sum", sa.Double(), nullable=True),
        sa.Column("power_mw_max", sa.Double(), nullable=True),
        sa.Column("sm_clock_mhz_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("sm_clock_mhz_sum", sa.Double(), nullable=True),
        sa.Column("temperature_c_max", sa.Double(), nullable=True),
        sa.Column("energy_mj", sa.BigInteger(), nullable=True),
        sa.Column("energy_source", sa.String(length=8), nullable=True),
        sa.Column("notes", sa.Text(), nullable=True),
        sa.Column("samples_z", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["gpu_id"], ["gpu.id"], name=op.f("fk_block_gpu_id")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_block_segment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_block")),
    )
    op.create_index("ix_block_gpu_id_start_ms", "block", ["gpu_id", "start_ms"], unique=False)
    op.create_table(
        "job_gpu",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_node_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("gpu_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=True),
        sa.Column("told", sa.String(length=16), nullable=True),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("covered_ms", sa.BigInteger(), nullable=False),
        sa.Column("shared_ms", sa.BigInteger(), nullable=False),
        sa.Column("first_block_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_block_ms", sa.BigInteger(), nullable=True),
        sa.Column("gpu_util_pct_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("gpu_util_pct_sum", sa.Double(), nullable=True),
        sa.Column("gpu_util_pct_max", sa.Double(), nullable=True),
        sa.Column("mem_util_pct_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("mem_util_pct_sum", sa.Double(), nullable=True),
        sa.Column("mem_used_bytes_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("mem_used_bytes_sum", sa.Double(), nullable=True),
        sa.Column("mem_used_bytes_max", sa.Double(), nullable=True),
        sa.Column("power_mw_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("power_mw_sum", sa.Double(), nullable=True),
        sa.Column("power_mw_max", sa.Double(), nullable=True),
        sa.Column("sm_clock_mhz_weight_ms", sa.BigInteger(), nullable=True),
        sa.Column("sm_clock_mhz_sum", sa.Double(), nullable=True),
        sa.Column("temperature_c_max", sa.Double(), nullable=True),
        sa.Column("energy_mj", sa.BigInteger(), nullable=True),
        sa.Column("energy_ms", sa.BigInteger(), nullable=False),
        sa.Column("energy_source", sa.String(length=8), nullable=True),
        sa.ForeignKeyConstraint(["gpu_id"], ["gpu.id"], name=op.f("fk_job_gpu_gpu_id")),
        sa.ForeignKeyConstraint(["job_node_id"], ["job_node.id"], name=op.f("fk_job_gpu_job_node_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_gpu")),
        sa.UniqueConstraint("job_node_id", "gpu_id", name=op.f("uq_job_gpu_job_node_id")),
    )
    op.create_index("ix_job_gpu_gpu_id", "job_gpu", ["gpu_id"], unique=False)
    op.create_index("ix_job_gpu_settled", "job_gpu", ["settled"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_job_gpu_settled", table_name="job_gpu")
    op.drop_index("ix_job_gpu_gpu_id", table_name="job_gpu")
    op.drop_table("job_gpu")
    op.drop_index("ix_block_gpu_id_start_ms", table_name="block")
    op.drop_table("block")
    op.drop_table("segment")
    op.drop_index("ix_job_node_job_id", table_name="job_node")
    op.drop_index("ix_job_node_end_ms", table_name="job_node")
    op.drop_table("job_node")
    op.drop_index("ix_gpu_placement_gpu_id_first_ms", table_name="gpu_placement")
    op.drop_table("gpu_placement")
    op.drop_index("ix_event_node_id_t_ms", table_name="event")
    op.drop_table("event")
    op.drop_table("node")
    op.drop_index("ix_job_start_ms", table_name="job")
    op.drop_index("ix_job_raw_job_id_start_ms", table_name="job")
    op.drop_index("ix_job_is_final_asked_ms", table_name="job")
    op.drop_index("ix_job_het_job_id", table_name="job")
    op.drop_index("ix_job_array_job_id", table_name="job")
    op.drop_table("job")
    op.drop_table("gpu")
    op.drop_table("cluster")
