"""Trainium2 (NeuronCore-v3, gen3): the default target."""

from .base import Generation

TRN2 = Generation(
    name="trn2",
    number=3,
    partitions=128,  # trainium2_arch.rst
    sbuf_partition_bytes=224 * 1024,  # trainium2_arch.rst: 28 MiB
    sbuf_usable_bytes=224 * 1024 - 16384 - 8,  # 212984: the figure that published kernels budget with
    psum_banks=8,  # trainium2_arch.rst: 2 MiB
    psum_bank_bytes=2048,
    hbm_bytes=96 * 2**30,  # trainium2_arch.rst: 96 GiB per device
    max_cores=2,  # lnc.rst
    gemm_stationary_fmax=128,  # nki.language.tile_size
    gemm_moving_fmax=512,
    bn_stats_fmax=512,  # nki.isa.bn_stats
)
