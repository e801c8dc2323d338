"""Trainium3 (NeuronCore-v4, gen4)."""

from .base import Generation

TRN3 = Generation(
    name="trn3",
    number=4,
    partitions=128,  # trainium3_arch.rst
    sbuf_partition_bytes=256 * 1024,  # trainium3_arch.rst: 32 MiB
    sbuf_usable_bytes=256 * 1024 - 16384 - 8,  # assumed: the reserve that published kernels budget with on trn2
    psum_banks=8,  # trainium3_arch.rst
    psum_bank_bytes=2048,
    hbm_bytes=144 * 2**30,  # trainium3_arch.rst: 144 GiB per device
    max_cores=2,  # lnc.rst
    gemm_stationary_fmax=128,  # nki.language.tile_size
    gemm_moving_fmax=4096,  # nki.isa.nc_matmul: 4096 for a float32, 8192 for a bfloat16 destination
    bn_stats_fmax=512,  # nki.isa.bn_stats
)
