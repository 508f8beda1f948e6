"""What all tests share: the folders of contrib/ that hold their machinery."""

import sys
from pathlib import Path

CONTRIB = Path(__file__).parent.parent / "contrib"
sys.path[:0] = [str(CONTRIB / "simgpu"), str(CONTRIB / "testcluster")]
