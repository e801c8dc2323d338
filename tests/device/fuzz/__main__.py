"""python -m tests.device.fuzz [--cases 10000] [--op attention]: fuzz, and print what the cases were."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from nki_sim import torch_device

from .shares import share_out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.device.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="over all operations")
    parser.add_argument("--op", help="attention, mlp or layer_norm, which then gets all cases")
    options = parser.parse_args()
    torch_device.install(strict=True)
    from .running import fuzz, parts

    print(f"{'operation':12} {'cases':>6} {'kernel':>7} {'reference':>10} {'refused':>8} {'wrong':>6} {'seconds':>8}")
    for op, cases in share_out(options.cases).items() if options.op is None else [(options.op, options.cases)]:
        counts: Counter[str] = Counter()
        before = time.perf_counter()
        for start, size in parts(cases):
            counts += fuzz(op, size, start)  # raises at the first wrong one
        how = f"{counts['kernel']:>7} {counts['reference']:>10} {counts['refused']:>8}"
        print(f"{op:12} {sum(counts.values()):>6} {how} {0:>6} {time.perf_counter() - before:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
