"""Mutations of memories, costs, DMA, GpSimd, exchange, random numbers, microscaling, views, registers and loops."""

from __future__ import annotations

from .mutation import Mutation, conformance

MEMORY, OPERANDS, UNINITIALIZED, COSTS = (
    f"nki_sim/{name}.py" for name in ("memory", "operands", "uninitialized", "costs")
)
OVERLAP, TURNS = "nki_sim/overlap.py", "nki_sim/turns.py"
INSTRUCTION, OBSERVERS = "nki_sim/instruction.py", "nki_sim/observers.py"
DMA = "nki_sim/isa/dma.py"
TRANSPOSE = "nki_sim/isa/dma_transpose.py"
COMPUTE = "nki_sim/isa/dma_compute.py"
INDIRECT = "nki_sim/indirect.py"
GPSIMD = "nki_sim/isa/gpsimd_engine.py"
MX = "nki_sim/isa/microscaling.py"
EXCHANGE = "nki_sim/isa/exchange.py"
RANDOM = "nki_sim/isa/random.py"
VIEW = "nki_sim/view.py"
TENSOR = "nki_sim/tensor.py"
STRIDES = "nki_sim/strides.py"
REGISTERS = "nki_sim/registers.py"
LOOPS = "nki_sim/language/loops.py"

_dma, _transpose, _compute = conformance("dma_copy"), conformance("dma_transpose"), conformance("dma_compute")
_gpsimd, _gathers, _mx = conformance("gpsimd_engine"), conformance("gpsimd_indirect"), conformance("microscaling")
_exchange, _random, _views = conformance("exchange"), conformance("random"), conformance("views")
_registers, _loops, _tensor = conformance("registers"), conformance("loops"), conformance("tensor_engine")
_memory, _overlap = ("tests/nki_sim/test_core_memory.py",), ("tests/nki_sim/test_overlap.py",)
_between = ("tests/nki_sim/test_core_between_launches.py",)
_unwritten, _costs = ("tests/nki_sim/test_uninitialized.py",), ("tests/timing/test_costs.py",)

ROWS: tuple[Mutation, ...] = (
    # -- memories
    Mutation(
        MEMORY,
        "first, last = (now, -1) if self.uses is None else self.uses",
        "first, last = 0, -1",
        "tiles live from the start",
        _memory,
    ),
    Mutation(MEMORY, "if self.uses is None or not self.unread:", "if True:", "what nobody reads is free", _memory),
    Mutation(MEMORY, "is_written or (self.unread and last == now)", "is_written", "in place is only read", _memory),
    Mutation(MEMORY, "math.inf if self.dropped is None", "math.inf if True", "what Python drops stays", _memory),
    Mutation(MEMORY, "(last + 1, False, allocation)", "(last, False, allocation)", "a tile dies too early", _memory),
    Mutation(MEMORY, "== (0 if sign > 0 else 1)", ">= 0", "overlapping addresses count twice", _memory),
    Mutation(MEMORY, "        self.depth[inside] += sign", "        pass", "tiles forget who lies over them", _memory),
    Mutation(
        INSTRUCTION,
        "if owner is not core.owner and owner",
        "if owner and False and owner",
        "tiles outlive launches",
        _between,
    ),
    Mutation(OBSERVERS, "    _here.muted = True", "    pass", "who is unobserved is observed", _between),
    Mutation(OBSERVERS, "else tuple(_observers)", "else _observers", "an observer hides the next one", _between),
    Mutation(OVERLAP, "len(there) > 1", "False", "tiles in one place share no bytes", _overlap),
    Mutation(OVERLAP, "shared |= {place, other}", "pass", "tiles that overlap in part are missed", _overlap),
    Mutation(OVERLAP, "return math.gcd(*sizes, ", "return math.gcd(", "overlaps smaller than a number", _overlap),
    Mutation(TENSOR, "            view._bound_by_address()", "            pass", "an index stays in its dim", _dma),
    Mutation(
        TENSOR,
        "(self.row_elements - 1 - low - reach) // how.stride + 1",
        "(self.row_elements - 1 - low) // how.stride + 1",
        "a pattern may end outside",
        _dma,
    ),
    # -- the pace of two cores
    Mutation(LOOPS, "== MANY_TRIPS and condition.state", "== 0", "endless loops are silent", _loops),
    Mutation(TURNS, "self._written[core] += 1", "pass", "cores do not keep pace", _exchange),
    Mutation(TURNS, "(self._written[c], c) < ahead", "False", "no core waits for the other's write", _exchange),
    Mutation(TURNS, "        self._written = [0] * self._cores\n", "", "the pace goes on after a meeting", _exchange),
    # -- costs
    Mutation(COSTS, "record.generation >= 3", "record.generation >= 2", "gen2 adds 16 bits at twice the rate", _costs),
    Mutation(COSTS, '("scalar", 4): 2', '("scalar", 3): 2', "gen3's Scalar Engine copies 16 bits faster", _costs),
    # -- reads of what was never written
    Mutation(OPERANDS, "if self.read_if else", "if False else", "an accumulating matmul reads nothing", _unwritten),
    Mutation(OPERANDS, "return self.keeps or", "return", "what an instruction leaves alone is written", _unwritten),
    Mutation(
        UNINITIALIZED,
        "if found is not None and operand.read_rows is not None:",
        "if found is None:",
        "partitions that nobody reads must be written",
        _unwritten,
    ),
    # -- DMA
    Mutation(DMA, "if dst.size != src.size:", "if dst.shape != src.shape:", "dma_copy wants equal shapes", _dma),
    Mutation(
        DMA,
        '    if picks_rows(dst) or picks_rows(src):\n        raise call.refuse("hwdge',
        '    if picks_rows(dst) and picks_rows(src):\n        raise call.refuse("hwdge',
        "hwdge gathers",
        _dma,
    ),
    Mutation(
        DMA,
        "asked not in (engines.sync, engines.scalar)",
        "asked not in (engines.sync, engines.scalar, engines.vector)",
        "the Vector Engine triggers hwdge",
        _dma,
    ),
    Mutation(
        INDIRECT,
        "return columns.reshape(-1)[: view.shape[0]]",
        "return columns.T.reshape(-1)[: view.shape[0]]",
        "indices of a transposition are read row first",
        _transpose,
    ),
    Mutation(
        INDIRECT,
        "(indices >= 0) & (indices < view.indirection.extent)",
        "(indices >= 0) & (indices <= view.indirection.extent)",
        "one index past the end is inside",
        (*_dma, *_compute),
    ),
    Mutation(
        INDIRECT,
        "mask = np.ones(len(indices), np.bool_) if inside is None else inside",
        "mask, indices = np.ones(len(indices), np.bool_), indices if inside is None else np.where(inside, indices, 0)",
        "skipped rows are written to row 0",
        (*_dma, *_compute),
    ),
    Mutation(
        INDIRECT,
        "mask.reshape(-1, *[1] * (wanted.ndim - 1)) & wanted",
        "np.broadcast_to(mask.reshape(-1, *[1] * (wanted.ndim - 1)), wanted.shape)",
        "a scatter writes what its source left out",
        _dma,
    ),
    Mutation(
        INDIRECT,
        "first, last = int(indices.min()), int(indices.max())",
        "first, last = 0, int(indices.max())",
        "row 0 must lie in the tensor, whatever the indices say",
        (*_dma, *conformance("dma_random_rows")),
    ),
    Mutation(
        DMA,
        "if not is_integer(priority) or priority not in PRIORITIES:",
        "if priority not in PRIORITIES:",
        "priorities may be floats",
        _dma,
    ),
    Mutation(
        TRANSPOSE,
        "if mode is dge_modes.none and moves_at_run_time(src):",
        "if mode is dge_modes.none and picks_rows(src):",
        "descriptors made beforehand follow a run-time address",
        _transpose,
    ),
    Mutation(
        COMPUTE,
        'writes("*", MEMORY, dtypes.ARITHMETIC, form',
        'writes("*", MEMORY, form',
        "dma_compute writes sums to int64",
        _compute,
    ),
    Mutation(COMPUTE, "is_number(scale) and scale == 1.0", "scale == 1.0", "scales may be tensors", _compute),
    Mutation(
        MX,
        "if quadrant != values.first_partition // QUADRANT:",
        "if quadrant > QUADRANT:",
        "scales come from another quadrant",
        _mx,
    ),
    Mutation(
        REGISTERS,
        "if core is None or core.launch.execute:",
        "if core is None:",
        "a register that nobody wrote holds 0",
        _registers,
    ),
    Mutation(
        TRANSPOSE,
        "dst.array[..., inside] = turned[..., inside]",
        "dst.array[...] = turned",
        "skipped rows of a transposition are cleared",
        _transpose,
    ),
    Mutation(TRANSPOSE, "4: (3, 1, 2, 0)", "4: (3, 2, 1, 0)", "four dims are transposed in another order", _transpose),
    Mutation(
        COMPUTE,
        "total = total + part if position else part",
        "total = part",
        "dma_compute keeps the last source only",
        _compute,
    ),
    Mutation(
        COMPUTE,
        "part = dtypes.to_float32(np.ascontiguousarray(contents)).reshape(-1)",
        "part = np.ascontiguousarray(contents).reshape(-1)",
        "dma_compute adds in the sources' format",
        _compute,
    ),
    Mutation(
        COMPUTE, "if len(np.unique(valid)) != len(valid):", "if False:", "a scatter takes an index twice", _compute
    ),
    # -- GpSimd
    Mutation(
        GPSIMD,
        "rows = start + channel_multiplier * np.arange",
        "rows = start * channel_multiplier + np.arange",
        "iota: offset and channel_multiplier mixed up",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        "values = (values[:, None] + step * np.arange(count)).reshape(-1)",
        "values = (values + (step * np.arange(count))[:, None]).reshape(-1)",
        "iota: the first pair is innermost",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        "    return op.binary(values, 0)",
        "    return op.binary(0, values)",
        "affine_select compares zero with the value",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        ".transpose(0, 2, 1).reshape(cores, -1)[:, :count]",
        ".reshape(cores, -1)[:, :count]",
        "local_gather reads indices element first",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        "taken = (flat[:, :, None] + np.arange(num_elem_per_idx))",
        "taken = (flat[:, :, None] * num_elem_per_idx + np.arange(num_elem_per_idx))",
        "local_gather counts runs instead of elements",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        "np.where(ids == 0, -1, ends[run])",
        "np.where(ids == 0, n, ends[run])",
        "sequence_bounds: padding ends at n",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        "        row[-1] = len(found)",
        "        row[len(found)] = len(found)",
        "nonzero_with_count puts the count after the indices",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        "range(0, len(src), CORE_PARTITIONS):\n        found",
        "range(len(src)):\n        found",
        "nonzero_with_count writes every partition",
        _gpsimd,
    ),
    Mutation(GPSIMD, "[:, :k][:, ::-1]", "[:, :k]", "topk descends", _gpsimd),
    Mutation(INDIRECT, '32 if engine == "tensor" else 16', "16", "the Tensor Engine gathers by groups of 16", _tensor),
    Mutation(
        INDIRECT,
        "found: Array = stored[:group].T.reshape(-1)[:count]",
        "found: Array = stored[:group].reshape(-1)[:count]",
        ".indirect() reads its index row first",
        _gathers,
    ),
    # -- microscaling
    Mutation(MX, "- 1 - (largest - 1)", "- 1 - largest", "quantize_mx: the scale is half as large", _mx),
    Mutation(MX, "group // 4 * QUADRANT + group % 4", "group", "scales lie one after the other", _mx),
    Mutation(MX, "values.transpose(0, 2, 1).reshape", "values.reshape", "packed numbers and columns are mixed up", _mx),
    # -- exchange and random numbers
    Mutation(
        EXCHANGE,
        "contents = parcels[recv_from_rank][2]",
        "contents = parcels[core.index][2]",
        "sendrecv hands back what it sent",
        _exchange,
    ),
    Mutation(
        EXCHANGE,
        "        if given > most:",
        "        if given > 2 * most:",
        "gpsimd_dma carries twice as much",
        _exchange,
    ),
    Mutation(
        RANDOM,
        'bits.astype(f"u{size}").view(dst.array.dtype)',
        '(bits >> np.uint32(32 - 8 * size)).astype(f"u{size}").view(dst.array.dtype)',
        "rng keeps the high bits",
        _random,
    ),
    # -- views
    Mutation(
        VIEW,
        "        if not (0 <= start < stop <= extent):\n            raise",
        "        stop = min(stop, extent)\n        if not (0 <= start < stop <= extent):\n            raise",
        "slices clamp as in NumPy",
        _views,
    ),
    Mutation(
        VIEW,
        "if step > 1 and dim == 0 and stop - start > step and self.on_chip:",
        "if False:",
        "partitions can be strided",
        _views,
    ),
    Mutation(VIEW, "or high >= row or", "or high - size >= row or", "a pattern may end one past its row", _views),
    Mutation(
        TENSOR,
        'base += 0 if offset is None else integer("ap", "offset", offset)',
        'base = base if offset is None else integer("ap", "offset", offset)',
        "ap: an explicit offset counts from the storage's start",
        _views,
    ),
    Mutation(
        TENSOR,
        "shape, steps = [self.shape[d] for d in dims], [self.strides[d] for d in dims]",
        "shape, steps = [self.shape[d] for d in dims], [*self.strides]",
        "permute leaves the strides",
        _views,
    ),
    Mutation(
        STRIDES,
        "        if outer != extent * inner:",
        "        if outer < extent * inner:",
        "dims merge over gaps",
        (*_views, *conformance("vector_elementwise")),
    ),
    # -- registers and loops
    Mutation(
        REGISTERS,
        "    half = 1 << (bits - 1)",
        "    half = 1 << bits",
        "scalars do not wrap at their width",
        _registers,
    ),
    Mutation(
        REGISTERS,
        "(_value(other), self.current()) if swapped else (self.current(), _value(other))\n        result = f",
        "(self.current(), _value(other))\n        result = f",
        "number minus register is register minus number",
        _registers,
    ),
    Mutation(
        LOOPS,
        "            yield from range(first, last, step)",
        "            yield from range(first, last + 1, step)",
        "fori_loop runs once more",
        _loops,
    ),
    Mutation(
        LOOPS,
        "if loop.core.launch.execute and not condition.current():",
        "if loop.core.launch.execute and condition.current() < 0:",
        "while_loop goes on at zero",
        _loops,
    ),
    Mutation(
        LOOPS,
        "yield VirtualRegister(value, frozen=True)",
        "yield VirtualRegister(value)",
        "the index of dynamic_range can be written",
        (*_loops, *_registers),
    ),
)
