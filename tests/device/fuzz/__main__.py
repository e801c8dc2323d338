"""python -m tests.device.fuzz [--cases 10000] [--op attention] [--start 0]: fuzz and print the counts."""

from __future__ import annotations

import argparse

from nki_sim import torch_device

# How the cases are shared out among the operations.
SHARES = {"attention": 0.5, "mlp": 0.25, "layer_norm": 0.25}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.device.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=500, help="cases over all operations")
    parser.add_argument("--op", choices=sorted(SHARES), help="one operation gets all cases")
    parser.add_argument("--start", type=int, default=0, help="another number draws other cases")
    options = parser.parse_args()
    torch_device.install(strict=True)
    from .running import timed

    print(f"{'operation':12} {'cases':>6} {'kernel':>7} {'reference':>10} {'refused':>8} {'wrong':>6} {'seconds':>8}")
    for op, share in SHARES.items() if options.op is None else [(options.op, 1.0)]:
        counts, seconds = timed(op, round(options.cases * share), options.start)
        columns = " ".join(
            f"{counts[how]:>{width}}" for how, width in (("kernel", 7), ("reference", 10), ("refused", 8))
        )
        print(f"{op:12} {sum(counts.values()):>6} {columns} {0:>6} {seconds:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
