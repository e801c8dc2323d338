"""Counters, so that a test can say "this ran on the device" instead of hoping so."""

from collections import Counter

import torch

_ops: Counter[str] = Counter()
_kernels: Counter[str] = Counter()
_compilations: Counter[str] = Counter()
_graphs: list[torch.fx.GraphModule] = []

GRAPHS_KEPT = 64
TORCH_OPERATORS = ("aten.", "prims.", "prim.", "<built-in")


def op_counts() -> Counter[str]:
    """How often each torch operator ran on the device since `reset_counts()`, by name ("aten::add.Tensor")."""
    return Counter(_ops)


def kernel_counts() -> Counter[str]:
    """How often each NKI kernel was launched from neuron tensors since `reset_counts()`, by name."""
    return Counter(_kernels)


def compile_counts() -> Counter[str]:
    """How many graphs `torch.compile(backend="neuron")` compiled since `reset_counts()`, by their input shapes."""
    return Counter(_compilations)


def reset_counts() -> None:
    """Set every counter to zero and forget the graphs."""
    for record in (_ops, _kernels, _compilations, _graphs):
        record.clear()


def count_op(name: str) -> None:
    """Note one run of a torch operator."""
    _ops[name] += 1


def count_kernel(name: str) -> None:
    """Note one launch of a kernel, whatever its number of cores."""
    _kernels[name] += 1


def count_compilation(shapes: str) -> None:
    """Note one compiled graph."""
    _compilations[shapes] += 1


def compiled_graphs() -> list[torch.fx.GraphModule]:
    """The latest graphs that `torch.compile(backend="neuron")` made, forward and backward, oldest first."""
    return list(_graphs)


def kernel_nodes(graph: torch.fx.GraphModule) -> list[str]:
    """The nodes of a graph which are not torch's own operators: NKI kernels and custom operators, in order."""
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    return [_name_of(node) for node in calls if not str(node.target).startswith(TORCH_OPERATORS)]


def _name_of(node: torch.fx.Node) -> str:
    """ "nki_kernel(layer_norm)" for a kernel launch, "vit_neuron.layer_norm.default" for a custom operator."""
    from .launch import launch_of

    target = str(node.target)
    return f"nki_kernel({launch_of(int(str(node.args[0]))).kernel.name})" if target == "nki_kernel" else target


def keep_graph(graph: torch.fx.GraphModule) -> None:
    """Remember a compiled graph."""
    _graphs.append(graph)
    del _graphs[:-GRAPHS_KEPT]
