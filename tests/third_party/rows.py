"""The kernels of the AWS documentation and of nki-samples: where each stands, its arguments, what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Load = Callable[[str], Any]  # the module in a file beside the kernel's
Case = tuple[tuple[Any, ...], Any]  # arguments, and what they should give
BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Row:
    """One kernel. `expected` is "works", "refused" (the device would refuse it) or "broken" (the example itself is)."""

    file: str
    function: str
    case: Callable[[np.random.Generator, Load], Case]
    target: str = "trn2"
    cores: int | None = None
    tolerance: float = 1e-5
    expected: str = "works"
    label: str = ""
    edit: tuple[tuple[str, str], ...] = ()  # texts to replace in the source before it runs


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def two(numpy: Any, *shapes: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Random arrays of these shapes, and `numpy` of them."""

    def case(rng: np.random.Generator, load: Load) -> Case:
        arrays = tuple(normal(rng, *shape, dtype=dtype) for shape in shapes)
        return arrays, numpy(*arrays)

    return case


def sums(*shape: int, dtype: Any = np.float32) -> Any:
    return two(np.add, shape, shape, dtype=dtype)


def matmul(k: int, m: int, n: int, dtype: Any = np.float32) -> Any:
    return two(lambda a, b: a.astype(np.float64).T @ b.astype(np.float64), (k, m), (k, n), dtype=dtype)


def transposed(rng: np.random.Generator, load: Load) -> Case:
    x = np.arange(5 * 12, dtype=np.int8).reshape(5, 12)
    return (x, (3, 4)), x.reshape(5, 3, 4).transpose(0, 2, 1).reshape(5, 12)


def pooled(reduce: Any) -> Any:
    def case(rng: np.random.Generator, load: Load) -> Case:
        x = normal(rng, 8, 12, 16)
        return (x, 2), reduce(x.astype(np.float64).reshape(8, 6, 2, 8, 2), axis=(2, 4))

    return case


def columns(rng: np.random.Generator, load: Load) -> Case:
    x = np.arange(4 * 5).reshape(4, 5).astype(BF16)
    return (x,), (x[:, ::2], x[:, 1::2])


def mamba(rng: np.random.Generator, load: Load) -> Case:
    """The selective scan, step by step in double precision."""
    batch, channels, state, length = 1, 256, 4, 512
    delta, u = (np.abs(normal(rng, batch, channels, length)) * 0.1 for _ in range(2))
    a = -np.abs(normal(rng, channels, state))
    b, c = normal(rng, batch, state, length), normal(rng, batch, state, length)
    out = np.zeros((batch, channels, length))
    hidden = np.zeros((batch, channels, state))
    for t in range(length):
        step = delta[:, :, t, None].astype(np.float64)
        hidden = np.exp(step * a) * hidden + step * u[:, :, t, None] * b[:, None, :, t]
        out[:, :, t] = (hidden * c[:, None, :, t]).sum(-1)
    return (delta.astype(np.float32), u.astype(np.float32), a, b, c), out


FP8, FP4 = ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn


def x4(kind: Any) -> str:
    return {FP8: "float8_e5m2_x4", FP4: "float4_e2m1fn_x4", ml_dtypes.float8_e4m3fn: "float8_e4m3fn_x4"}[kind]


def as_given(packed: np.ndarray, kind: Any) -> np.ndarray:
    """Packed MX data as the kernel's argument: 32 bits for four fp8, 16 bits for four fp4."""
    return packed if kind is not FP4 else packed.view(np.uint16)


def mx_on_host(kind: Any) -> Any:
    """Both operands quantized on the host, by the example's own helpers."""

    def case(rng: np.random.Generator, load: Load) -> Case:
        cpu = load("mx_cpu_utils.py")
        np.random.seed(0)  # the helpers draw from NumPy's global generator
        _, _, left, left_scale = cpu.generate_stabilized_mx_data(kind, (128, 512))
        _, _, right, right_scale = cpu.generate_stabilized_mx_data(kind, (128, 2048))
        want = cpu.nc_matmul_mx_golden(left, right, left_scale, right_scale, kind, kind)
        return (as_given(left, kind), left_scale, as_given(right, kind), right_scale, x4(kind)), want

    return case


def mx_on_device(left_kind: Any, right_kind: Any) -> Any:
    """The moving operand quantized on the device."""

    def case(rng: np.random.Generator, load: Load) -> Case:
        cpu = load("mx_cpu_utils.py")
        np.random.seed(0)
        _, _, left, left_scale = cpu.generate_stabilized_mx_data(left_kind, (128, 512))
        moving, _, _, _ = cpu.generate_stabilized_mx_data(right_kind, (128, 2048))
        right, right_scale = cpu.quantize_mx_golden(moving, right_kind)
        want = cpu.nc_matmul_mx_golden(left, right, left_scale, right_scale, left_kind, right_kind)
        return (as_given(left, left_kind), left_scale, moving.astype(BF16), x4(left_kind), x4(right_kind)), want

    return case


def mx_strided(by_tensor_copy: bool) -> Any:
    """Both operands laid out and quantized on the device."""

    def case(rng: np.random.Generator, load: Load) -> Case:
        cpu = load("mx_cpu_utils.py")
        np.random.seed(0)
        left = cpu.generate_stabilized_mx_data(FP8, (512, 128))[0]
        right = cpu.generate_stabilized_mx_data(FP8, (512, 512))[0]
        return (left.astype(BF16), right.astype(BF16), x4(FP8), by_tensor_copy), left.T @ right

    return case


def mx_rows(folder: str, edit: tuple[tuple[str, str], ...] = ()) -> list[Row]:
    """The MX tutorial; results are bfloat16."""
    file = f"{folder}/mx_kernels.py"
    loose: dict[str, Any] = {"target": "trn3", "tolerance": 5e-2, "edit": edit}  # the tutorial's own tolerance
    return [
        Row(file, "kernel_offline_quantized_mx_matmul", mx_on_host(FP8), label="fp8", **loose),
        Row(file, "kernel_offline_quantized_mx_matmul", mx_on_host(FP4), label="fp4", **loose),
        Row(file, "kernel_on_device_quantize_matmul_mx", mx_on_device(FP4, FP8), label="fp4 x fp8", **loose),
        Row(file, "kernel_copy_strided_quantize_matmul_mx", mx_strided(True), label="tensor_copy", **loose),
        Row(file, "kernel_copy_strided_quantize_matmul_mx", mx_strided(False), label="dma", **loose),
    ]


def matmul_rows(file: str, old: bool = False) -> list[Row]:
    """The steps of the matrix multiplication tutorial. `old`: the first three pass dtype=, which NKI 0.2 removed."""
    edit = ((", dtype=result.dtype)", ")"),) if old else ()
    steps = [
        Row(file, "nki_matmul_basic_", matmul(128, 64, 512), edit=edit),
        Row(file, "nki_matmul_basic_", matmul(128, 64, 512, BF16), label="bf16", tolerance=2e-2, edit=edit),
        Row(file, "nki_matmul_tiled_", matmul(256, 256, 1024), edit=edit),
        Row(file, "nki_matmul_hoist_load_", matmul(256, 256, 1024), edit=edit),
        Row(file, "nki_matmul_block_free_dimension_", matmul(256, 512, 2048)),
        Row(file, "nki_matmul_fully_optimized_", matmul(1024, 2048, 1024)),
        Row(file, "nki_matmul_fully_optimized_", matmul(1024, 2048, 1024, BF16), label="bf16", tolerance=2e-2),
    ]
    if old:
        steps.insert(0, Row(file, "nki_matmul_basic_", matmul(128, 64, 512), label="as it stands", expected="refused"))
    return steps


EXAMPLES = "nki/examples"
SDK: list[Row] = [
    Row(f"{EXAMPLES}/tensor_addition/tensor_addition_nki_kernels.py", "nki_tensor_add", sums(256, 1024)),
    Row(f"{EXAMPLES}/simulate/nki_simulate_example.py", "add_kernel", sums(128, 512)),
    *[
        Row(f"{EXAMPLES}/getting_started_{name}.py", "nki_tensor_add_kernel", sums(4, 3, dtype=np.float16))
        for name in ("baremetal", "torch", "jax")
    ],
    Row(f"{EXAMPLES}/transpose2d/transpose2d_nki_kernels.py", "tensor_transpose2D_kernel_", transposed),
    *matmul_rows(f"{EXAMPLES}/matrix_multiplication/matrix_multiplication_nki_kernels.py"),
    Row(f"{EXAMPLES}/average_pool2d/average_pool2d_nki_kernels.py", "tensor_avgpool_kernel", pooled(np.mean)),
    *[
        Row(f"{EXAMPLES}/fused_mamba/mamba_nki_kernels.py", f"mamba_v{version}", mamba, tolerance=1e-4)
        for version in (1, 2, 3)
    ],
    Row(f"{EXAMPLES}/index-case-1.py", "tensor_split_kernel_", columns),
    Row(f"{EXAMPLES}/index-case-3.py", "tensor_maxpool_kernel_", pooled(np.max)),
    Row(f"{EXAMPLES}/layout-pass.py", "tensor_exp_kernel_", two(np.exp, (128, 512))),
    Row(f"{EXAMPLES}/layout-violation.py", "tensor_exp_kernel_", two(np.exp, (256, 512)), expected="refused"),
    Row(f"{EXAMPLES}/layout-loop.py", "tensor_exp_kernel_", two(np.exp, (256, 512)), expected="broken"),
    Row(f"{EXAMPLES}/layout-dynamic-loop.py", "tensor_exp_kernel_", two(np.exp, (256, 512)), expected="broken"),
    *mx_rows("nki/deep-dives/src/mxfp-matmul"),
    Row(
        "nki/deep-dives/src/mxfp-matmul/mx_kernels.py",
        "kernel_copy_strided_quantize_matmul_mx_packed_scale",
        mx_strided(True),
        target="trn3",
        tolerance=5e-2,
    ),
]

TUTORIALS = "src/nki_samples/tutorials"
SAMPLES: list[Row] = [
    *matmul_rows(f"{TUTORIALS}/matrix_multiplication/matrix_multiplication_nki_kernels.py", old=True),
    Row(
        f"{TUTORIALS}/mxfp-matmul/mx_kernels.py",
        "kernel_offline_quantized_mx_matmul",
        mx_on_host(FP8),
        target="trn3",
        expected="refused",
        label="as it stands",
    ),
    *mx_rows(
        f"{TUTORIALS}/mxfp-matmul",
        edit=(('@nki.jit(platform_target="trn3")', "@nki.jit"), (", dtype=nl.bfloat16)  ", ")")),
    ),
]
