#!/bin/sh
# All tests. Those on a real Slurm mostly wait for it, so they run beside the others; what they said comes last.
set -u
cd "$(dirname "$0")/../.."
log=$(mktemp)
# What runs in the background ignores Ctrl-C by default, and would not take its cluster down.
env --default-signal=INT .venv/bin/python -m pytest -p no:cacheprovider tests/slurm >"$log" 2>&1 &
slurm=$!
trap 'kill -INT $slurm 2>/dev/null; wait $slurm; exit 130' INT TERM
.venv/bin/python -m pytest --ignore tests/slurm
others=$?
wait $slurm
on_slurm=$?
cat "$log"
rm -f "$log"
[ $others = 0 ] && [ $on_slurm = 0 ]
