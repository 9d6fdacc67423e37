"""The helper modules beside the tests are imported by name, and the benchmarks."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
