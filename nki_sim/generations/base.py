"""What a generation of NeuronCore is: the limits that the instruction set checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """Limits of one physical NeuronCore. Sizes in bytes per partition unless the name says otherwise."""

    name: str
    number: int  # the 2, 3, 4 of gen2, gen3, gen4
    partitions: int
    sbuf_partition_bytes: int
    sbuf_usable_bytes: int
    psum_banks: int
    psum_bank_bytes: int
    hbm_bytes: int
    max_cores: int  # physical cores that one kernel may span (LNC)
    gemm_stationary_fmax: int
    gemm_moving_fmax: int
    bn_stats_fmax: int

    @property
    def gen(self) -> str:
        return f"gen{self.number}"

    @property
    def psum_partition_bytes(self) -> int:
        return self.psum_banks * self.psum_bank_bytes

    @property
    def psum_bank_fp32(self) -> int:
        """float32 elements of one bank in one partition."""
        return self.psum_bank_bytes // 4
