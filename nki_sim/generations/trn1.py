"""Trainium1 and Inferentia2 (NeuronCore-v2, gen2)."""

from .base import Generation

TRN1 = Generation(
    name="trn1",
    number=2,
    partitions=128,  # trainium_inferentia2_arch.rst
    sbuf_partition_bytes=192 * 1024,  # trainium_inferentia2_arch.rst: 24 MiB
    sbuf_usable_bytes=192 * 1024 - 16384 - 8,  # assumed: the reserve that published kernels budget with on trn2
    psum_banks=8,  # trainium_inferentia2_arch.rst
    psum_bank_bytes=2048,
    hbm_bytes=32 * 2**30,  # 32 GiB per device
    max_cores=1,  # lnc.rst: logical cores of two physical ones exist from trn2 on
    gemm_stationary_fmax=128,  # nki.language.tile_size
    gemm_moving_fmax=512,
    bn_stats_fmax=512,  # nki.isa.bn_stats
)
