"""All that a compute node imports: Python's standard library and nvidia-ml-py, nothing else."""
