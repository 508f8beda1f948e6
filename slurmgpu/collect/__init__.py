"""The collector: spools into the store, and the store in step with Slurm."""
