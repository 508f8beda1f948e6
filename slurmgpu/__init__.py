"""Says what every Slurm job did with its GPUs, and takes sick GPUs out of service."""

__version__ = "0.1.0"
