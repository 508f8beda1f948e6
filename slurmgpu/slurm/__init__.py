"""What slurmgpu asks Slurm, and how it reads the answers: job ids, node lists, times, GPU numbers."""
