"""Mutations of PSUM's write history, the array's modes, DMA's refusals, random numbers, two cores and collectives."""

from __future__ import annotations

from .mutation import Mutation, conformance

DMA, TRANSPOSE, COMPUTE = (f"nki_sim/isa/{name}.py" for name in ("dma", "dma_transpose", "dma_compute"))
TENSOR, MX, GPSIMD = (f"nki_sim/isa/{name}.py" for name in ("tensor_engine", "microscaling", "gpsimd_engine"))
RANDOM, EXCHANGE = (f"nki_sim/isa/{name}.py" for name in ("random", "exchange"))
ACCUMULATION, INDIRECT, XORWOW, TURNS, RACES, INSTRUCTION, LAUNCH = (
    f"nki_sim/{name}.py" for name in ("accumulation", "indirect", "xorwow", "turns", "races", "instruction", "launch")
)
GROUPS, COLLECTIVE_RULES, CHUNKS = (f"nki_sim/collectives/{name}.py" for name in ("groups", "rules", "chunks"))

_dma, _transpose, _compute = conformance("dma_copy"), conformance("dma_transpose"), conformance("dma_compute")
_tensor, _mx, _gpsimd = conformance("tensor_engine"), conformance("microscaling"), conformance("gpsimd_engine")
_gathers, _random = conformance("gpsimd_indirect"), conformance("random")
_exchange, _collectives = conformance("exchange"), conformance("collectives")

ROWS: tuple[Mutation, ...] = (
    # -- PSUM's write history
    Mutation(
        ACCUMULATION,
        "if not any(_overlap(box, other) for other in self.boxes.values()):",
        "if True:",
        "views that overlap in part start anew",
        _tensor,
    ),
    Mutation(
        ACCUMULATION,
        "self.boxes.setdefault(_view(dst), _box(dst))",
        "self.boxes.clear()",
        "only the last view has a history",
        _tensor,
    ),
    Mutation(
        ACCUMULATION,
        "        history.warn_if_undefined(dst, covered, core)\n",
        "",
        "undefined accumulation is silent",
        _tensor,
    ),
    Mutation(ACCUMULATION, "if core.target.number >= 4:", "if core.target.number >= 3:", "memset, then add", _tensor),
    # -- modes of the array
    Mutation(
        TENSOR,
        "if is_transpose and current_core().target.number >= 3:",
        "if is_transpose:",
        "gen2 transposes bit by bit",
        _tensor,
    ),
    Mutation(
        TENSOR,
        'raise IllegalInstruction(refusal("nc_matmul", given, allowed, "use nl.shared_identity_matrix"))',
        "pass",
        "is_transpose takes any moving tile",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "if known.get(tile.storage) == contents:",
        "if tile.storage in known:",
        "an identity stays one when it is overwritten",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "if start % extent or not 0 <= start < PE_ROWS:",
        "if not 0 <= start < PE_ROWS:",
        "tiles start anywhere",
        _tensor,
    ),
    Mutation(
        TENSOR,
        'if call.target.number < 4 and "float8_e4m3fn"',
        'if call.target.number < 3 and "float8_e4m3fn"',
        "trn2 multiplies e4m3fn",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "TENSOR if dst.buffer.space is PSUM and data.buffer.space is SBUF else VECTOR",
        "TENSOR if dst.buffer.space is PSUM else VECTOR",
        "a transpose inside PSUM goes to the Tensor Engine",
        _tensor,
    ),
    # -- microscaling
    Mutation(MX, "np.arange(0, 16, 4, dtype", "np.arange(12, -4, -4, dtype", "4-bit numbers come last first", _mx),
    Mutation(
        MX,
        "np.where(exponents == NO_SCALE, np.float32(np.nan), np.ldexp(np.float32(1), exponents - SCALE_BIAS))",
        "np.ldexp(np.float32(1), exponents - SCALE_BIAS)",
        "scale 255 is a number",
        _mx,
    ),
    Mutation(MX, "np.where(amax == 0, 0, biased)", "biased", "zeros get another scale", _mx),
    Mutation(MX, "if start not in SCALE_STARTS:", "if False:", "scales start anywhere in a quadrant", _mx),
    Mutation(MX, "if m > PE_ROWS or m % 2:", "if m > PE_ROWS:", "an odd M", _mx),
    # -- DMA
    Mutation(
        DMA,
        "if mode is dge_modes.none and (moves_at_run_time(dst) or moves_at_run_time(src)):",
        "if False:",
        "descriptors made before the launch move at run time",
        _dma,
    ),
    Mutation(DMA, "        return None, None", "        return view.at(0).array, None", "a skipped start is 0", _dma),
    Mutation(DMA, "if len(given) > 1 and given & dtypes.PACKED:", "if False:", "packed formats convert", _dma),
    Mutation(DMA, "    if call.target.number < 4:", "    if False:", "priorities before gen4", _dma),
    Mutation(
        INSTRUCTION,
        'if getattr(arguments.get("oob_mode"), "name", "") == "skip":',
        "if True:",
        "a scalar offset outside is left out without being asked",
        _dma,
    ),
    Mutation(
        TRANSPOSE,
        "if src.ndim == 2 and rows != ROWS_AT_ONCE:",
        "if src.ndim == 2 and rows % ROWS_AT_ONCE:",
        "hwdge transposes 32 rows",
        _transpose,
    ),
    Mutation(
        TRANSPOSE,
        'if problem is not None or index.dtype != "uint32":',
        "if problem is not None:",
        "gathered transposes take int32 indices",
        _transpose,
    ),
    Mutation(
        TRANSPOSE, "if src.ndim == 4 and 1 not in src.shape[1:3]:", "if False:", "4-D gathers of any size", _transpose
    ),
    Mutation(
        COMPUTE,
        "return _layout(one, 1) == _layout(other, 1) and same_place(one.indirection.index, other.indirection.index)",
        "return _layout(one, 1) == _layout(other, 1)",
        "read-modify-write of other rows than it reads",
        _compute,
    ),
    # -- GpSimd and random numbers
    Mutation(
        GPSIMD,
        'return values.view(np.uint32) if dst.dtype == "uint32" else values',
        "return values",
        "iota: uint32 saturates",
        _gpsimd,
    ),
    Mutation(
        GPSIMD,
        'order = np.argsort(-dtypes.to_float32(snakes), axis=1, kind="stable")',
        'order = np.argsort(dtypes.to_float32(snakes), axis=1, kind="stable")[:, ::-1]',
        "topk prefers the later of equal values",
        _gpsimd,
    ),
    Mutation(INDIRECT, "if index.first_partition % 32:", "if False:", "an index inside a quadrant", _gathers),
    Mutation(
        RANDOM,
        "lanes_of(current_core(), on).state[first : first + len(words)] = words",
        "lanes_of(current_core(), on).state[: len(words)] = words",
        "states go to the first lanes",
        _random,
    ),
    Mutation(XORWOW, "v = v ^ (v << 4)", "v = v ^ (v << 3)", "another generator", _random),
    Mutation(
        XORWOW,
        "out.transpose(1, 0, 2).reshape(lanes, -1)",
        "out.transpose(1, 2, 0).reshape(lanes, -1)",
        "one stream after the other",
        _random,
    ),
    # -- two cores
    Mutation(EXCHANGE, "recv_from_rank, src.array.copy()", "recv_from_rank, src.array", "sent tiles change", _exchange),
    Mutation(EXCHANGE, "if met[0].storage is not met[1].storage:", "if False:", "a barrier on other data", _exchange),
    Mutation(TURNS, "        if len(tags) > 1:", "        if False:", "cores meet for different things", _exchange),
    Mutation(
        LAUNCH,
        "raise next((error for error in failures if not isinstance(error, Abandoned)), failures[0])",
        "raise failures[-1]",
        "the caller sees a consequence instead of the cause",
        _exchange,
    ),
    Mutation(RACES, "        if record.instruction.meets:", "        if False:", "meetings do not count", _exchange),
    Mutation(
        RACES,
        "touched = np.zeros(near[0][0].allocation.row_bytes, np.bool_)",
        "touched = np.ones(near[0][0].allocation.row_bytes, np.bool_)",
        "neighbours race",
        _exchange,
    ),
    # -- collectives
    Mutation(
        CHUNKS,
        "CHUNKED = (group_rule, priority_level, single, equal_dtypes,",
        "CHUNKED = (group_rule, priority_level, single,",
        "chunks change their format on the way",
        _collectives,
    ),
    Mutation(
        COLLECTIVE_RULES,
        "        if len({t.size for t in tensors}) > 1:",
        "        if tensors[0].size != tensors[-1].size:",
        "a ring adds tensors of other sizes",
        _collectives,
    ),
    Mutation(
        COLLECTIVE_RULES,
        "        if t.dtype not in dtypes.ARITHMETIC:",
        "        if t.dtype not in dtypes.FORMATS:",
        "reductions of packed numbers and int64",
        _collectives,
    ),
    Mutation(
        CHUNKS, "    if not metadata.is_contiguous():", "    if False:", "metadata with gaps is lost", _collectives
    ),
    Mutation(
        GROUPS,
        "        if not isinstance(op, rg_partition_op):",
        "        if op is None:",
        "partitions by the name of an operator",
        _collectives,
    ),
    Mutation(EXCHANGE, "if not is_integer(rank) or rank not in CORES:", "if rank not in CORES:", "rank 1.0", _exchange),
    Mutation(
        TENSOR,
        "len(given) not in (0, 2) or not all(map(is_integer, given)):",
        "len(given) not in (0, 2):",
        "tiles of floats",
        _tensor,
    ),
    Mutation(
        MX,
        "not same_place(data.indirection.index, scale.indirection.index)",
        "data.indirection.index is None",
        "data and scales are gathered by two indices",
        _mx,
    ),
    Mutation(GROUPS, "    if mine != [[MY_RANK]]:", "    if not mine:", "more ranks run as one", _collectives),
    Mutation(
        CHUNKS,
        "chunk = np.ascontiguousarray(src.array).reshape(-1)[start : start + count]",
        "chunk = np.ascontiguousarray(src.array).reshape(-1)[:count]",
        "chunks start at 0",
        _collectives,
    ),
    Mutation(
        CHUNKS,
        "    if not recv_counts_known:",
        "    if recv_counts_known:",
        "known counts are written",
        _collectives,
    ),
)
