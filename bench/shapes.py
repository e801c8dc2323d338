"""The shapes that are benchmarked: operations of real models, by batch size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """What the operations of a vision transformer need to know of it."""

    name: str
    tokens: int  # of one image, with the class token where there is one
    hidden: int
    heads: int
    intermediate: int | None  # None: its MLP is gated, which the mlp operation is not


MODELS = (
    Model("vit-base-16-224", 197, 768, 12, 3072),
    Model("vit-large-16-224", 197, 1024, 16, 4096),
    Model("dinov2-small-224", 257, 384, 6, 1536),
    Model("dinov2-base-224", 257, 768, 12, 3072),
    Model("dinov2-large-224", 257, 1024, 16, 4096),
    Model("dinov2-giant-224", 257, 1536, 24, None),
    Model("dinov2-small-518", 1370, 384, 6, 1536),
    Model("dinov2-base-518", 1370, 768, 12, 3072),
    Model("dinov2-large-518", 1370, 1024, 16, 4096),
    Model("dinov2-giant-518", 1370, 1536, 24, None),
    Model("siglip-so400m-384", 729, 1152, 16, 4304),
    Model("clip-large-14-336", 577, 1024, 16, 4096),
)
BATCHES = (1, 8, 16, 64)
QUICK = 30_000  # token x layer-width units; larger cases are for `make bench-all`


@dataclass(frozen=True)
class Shape:
    """One operation of one model at one batch size."""

    operation: str
    model: Model
    batch: int

    @property
    def id(self) -> str:
        return f"{self.operation}-{self.model.name}-b{self.batch}"

    @property
    def sizes(self) -> dict[str, int]:
        """As vit_neuron_tools.operations names them."""
        model, tokens = self.model, self.batch * self.model.tokens
        if self.operation == "attention":
            size = model.hidden // model.heads
            return {"batch": self.batch, "seq": model.tokens, "heads": model.heads, "head_dim": size}
        if self.operation == "mlp":
            return {"tokens": tokens, "hidden": model.hidden, "intermediate": model.intermediate or 0}
        return {"tokens": tokens, "channels": model.hidden}

    @property
    def quick(self) -> bool:
        """Small enough for `make bench`: the simulation takes a few seconds at most."""
        model, tokens = self.model, self.batch * self.model.tokens
        if self.batch > 16:
            return False
        if self.operation == "attention":
            return tokens * model.heads * -(-model.tokens // 128) <= 4 * QUICK
        return tokens <= QUICK // 2


def shapes(every: bool = False) -> Iterator[Shape]:
    """The shapes of `make bench`, or every one."""
    for operation in ("attention", "mlp", "layer_norm"):
        for model in MODELS:
            if operation == "mlp" and model.intermediate is None:
                continue
            for batch in BATCHES:
                shape = Shape(operation, model, batch)
                if every or shape.quick:
                    yield shape
