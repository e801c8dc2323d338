"""What `kernels benchmark` runs: each operation at the sizes of ViT-B/16 at 224, one image, against torch's own.

On a host without Neuron it times the torch references. On a simulated Neuron device the times mean nothing.
"""

import torch
import torch.nn.functional as F
from kernels.benchmark import Benchmark

TOKENS, CHANNELS, HIDDEN, HEADS, HEAD_SIZE = 197, 768, 3072, 12, 64


class Common:
    """What the benchmarks share; no Benchmark itself, because the runner wants something to run in each.

    Float32 throughout: the runner compares within 1e-2, less than one step of bfloat16 at these magnitudes.
    """

    seed = 0
    device: str
    out: torch.Tensor

    def tensor(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        # Random numbers come from the CPU: a Neuron device has no generator of its own.
        return (torch.randn(*shape) * scale).to(self.device)

    def finish(self, out: torch.Tensor) -> None:
        """Keep the result and wait for it; the runner itself waits for CUDA, XPU and MPS only."""
        self.out = out
        if self.device == "neuron":
            torch.neuron.synchronize()


class LayerNormBenchmark(Common, Benchmark):
    def setup(self) -> None:
        self.x = self.tensor(1, TOKENS, CHANNELS)
        self.weight, self.bias = self.tensor(CHANNELS), self.tensor(CHANNELS)

    def benchmark_layer_norm(self) -> None:
        self.finish(self.kernel.layer_norm(self.x, self.weight, self.bias, 1e-6))

    def verify_layer_norm(self) -> torch.Tensor:
        return F.layer_norm(self.x, (CHANNELS,), self.weight, self.bias, 1e-6)


class MLPBenchmark(Common, Benchmark):
    def setup(self) -> None:
        self.x = self.tensor(1, TOKENS, CHANNELS)
        self.w1, self.b1 = self.tensor(HIDDEN, CHANNELS, scale=0.02), self.tensor(HIDDEN, scale=0.02)
        self.w2, self.b2 = self.tensor(CHANNELS, HIDDEN, scale=0.02), self.tensor(CHANNELS, scale=0.02)

    def benchmark_mlp(self) -> None:
        with torch.no_grad():
            self.finish(self.kernel.mlp(self.x, self.w1, self.b1, self.w2, self.b2, "gelu"))

    def verify_mlp(self) -> torch.Tensor:
        return F.linear(F.gelu(F.linear(self.x, self.w1, self.b1)), self.w2, self.b2)


class AttentionBenchmark(Common, Benchmark):
    def setup(self) -> None:
        # [B, S, H, D] memory seen as [B, H, S, D], as Transformers' models make it.
        shape = (1, TOKENS, HEADS, HEAD_SIZE)
        self.query, self.key, self.value = (self.tensor(*shape).transpose(1, 2) for _ in range(3))

    def benchmark_attention(self) -> None:
        self.finish(self.kernel.attention(self.query, self.key, self.value))

    def verify_attention(self) -> torch.Tensor:
        return F.scaled_dot_product_attention(self.query, self.key, self.value)
