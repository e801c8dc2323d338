"""The kernels say `import nki`: from here on that is the simulator."""

from __future__ import annotations

import nki_sim

nki_sim.install()
