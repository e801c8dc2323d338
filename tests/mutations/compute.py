"""Mutations of number formats, operators, and the Vector, Scalar and Tensor Engines."""

from __future__ import annotations

from .mutation import Mutation, conformance

DTYPES = "nki_sim/dtypes.py"
OPERATORS = "nki_sim/operators.py"
INSTRUCTION, CHECKING = "nki_sim/instruction.py", "nki_sim/checking.py"
COPIES = "nki_sim/isa/vector/copies.py"
ELEMENTWISE = "nki_sim/isa/vector/elementwise.py"
REDUCTIONS = "nki_sim/isa/vector/reductions.py"
RUNNING = "nki_sim/isa/vector/running.py"
SEARCH = "nki_sim/isa/vector/search.py"
RULES = "nki_sim/isa/vector/rules.py"
SCALAR = "nki_sim/isa/scalar_engine.py"
MACHINE, VALUES = "nki_sim/machine.py", "nki_sim/values.py"
TENSOR = "nki_sim/isa/tensor_engine.py"
ACCUMULATION = "nki_sim/accumulation.py"

_dtypes, _operators = conformance("dtypes"), conformance("operators")
_copies, _elementwise, _reductions = (conformance(f"vector_{n}") for n in ("copies", "elementwise", "reductions"))
_running, _search, _scalar = (
    conformance("vector_scans", "vector_accumulators"),
    conformance("vector_search"),
    conformance("scalar_activation"),
)
_tensor, _values = conformance("tensor_engine"), conformance("instruction_values")

ROWS: tuple[Mutation, ...] = (
    # -- number formats
    Mutation(
        DTYPES,
        "rounded = np.rint(values, dtype=np.float32)",
        "rounded = np.trunc(values, dtype=np.float32)",
        "integers truncate instead of rounding",
        _dtypes,
    ),
    Mutation(
        DTYPES,
        "    np.clip(rounded, limits.min, limits.max, out=rounded)\n",
        "",
        "integers wrap instead of saturating",
        _dtypes,
    ),
    Mutation(
        DTYPES, "        rounded[unordered] = 0", "        rounded[unordered] = 1", "NaN is no integer 0", _dtypes
    ),
    Mutation(
        DTYPES,
        "np.float32 if target.itemsize < 4 else np.float64",
        "np.float32",
        "int32 saturates at what float32 holds",
        _dtypes,
    ),
    Mutation(
        DTYPES, "(bits >> 16) | ((bits & 0xFFFF) != 0)", "(bits >> 16)", "fp8 rounds what is already cut off", _dtypes
    ),
    Mutation(
        DTYPES,
        "(bits + 0xFFF + ((bits >> 13) & 1))",
        "(bits + 0x1000)",
        "tfloat32 ties go up instead of to even",
        _dtypes,
    ),
    Mutation(
        DTYPES,
        "    if values.dtype == target:\n        return values\n    if values.dtype == np.int64",
        "    if values.dtype == np.int64",
        "copies of equal formats go through float32",
        _dtypes,
    ),
    Mutation(
        DTYPES,
        'return np.nan if kind in ("float", "scale") else 4 if',
        'return 0 if kind in ("float", "scale") else 4 if',
        "unwritten floats hold zero",
        _dtypes,
    ),
    Mutation(DTYPES, '!= "0"', '!= "1"', "NKI_PRECISE_FP is read the wrong way", _dtypes),
    # -- operators
    Mutation(
        OPERATORS,
        "np.where(np.abs(x) > np.abs(y), x, y)",
        "np.where(np.abs(x) >= np.abs(y), x, y)",
        "abs_max: a tie gives the left operand",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "np.where(np.abs(x) < np.abs(y), x, y)",
        "np.minimum(np.abs(x), np.abs(y))",
        "abs_min loses the sign",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "np.asarray(np.right_shift(x, y))",
        'np.asarray(np.right_shift(x.view(f"i{x.dtype.itemsize}"), y))',
        "right shifts keep the sign",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "        return compute(op, operand, data, out)\n    return",
        "        return compute(op, data, operand, out)\n    return",
        "reverse flags do nothing",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "    if reverse and op.unary is None:",
        "    if reverse:",
        "reversed unary operators take the operand",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "return np.where(x < 0, tail, 1.0 - tail), decay",
        "return np.where(x < 0, 1.0 - tail, tail), decay",
        "gelu takes the other tail",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "math.sqrt(2.0 / math.pi) * (x + 0.044715",
        "math.sqrt(2.0 / math.pi) * (x + 0.0447",
        "gelu_apprx_tanh: a digit of its constant",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "return x * sigmoid(2.0 * math.sqrt(2.0 / math.pi) *",
        "return 0.5 * x + 0.5 * x * np.tanh(math.sqrt(2.0 / math.pi) *",
        "gelu_apprx_tanh cancels",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "    return x * sigmoid(1.702 * x)",
        "    return x * sigmoid(1.7 * x)",
        "gelu_apprx_sigmoid: a digit of its constant",
        _operators,
    ),
    Mutation(
        OPERATORS, "return s * (1.0 + x * (1.0 - s))", "return s * (1.0 - x * (1.0 - s))", "silu_dx: a sign", _operators
    ),
    Mutation(
        OPERATORS,
        "beyond * beyond * beyond / 6.0 - beyond",
        "np.sin(beyond)",
        "sine beyond pi does not extrapolate",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "return np.where(x >= 0, x, slope * x)",
        "return np.where(x >= 0, slope * x, x)",
        "prelu scales the wrong side",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "def silu(x: Array) -> Array:\n    return x * sigmoid(x)",
        "def silu(x: Array) -> Array:\n    return _finite(x) * sigmoid(x)",
        "silu of -inf is 0",
        _operators,
    ),
    Mutation(
        OPERATORS,
        '_binary("less_equal", np.less_equal)',
        '_binary("less_equal", np.less)',
        "less_equal forgets the equal",
        _operators,
    ),
    Mutation(
        OPERATORS,
        "np.logical_xor, reduces=True",
        "np.logical_or, reduces=True",
        "logical_xor is logical_or",
        _operators,
    ),
    # -- declaration form
    Mutation(
        CHECKING,
        "legal = (0,) if count > 64 else (0, 64) if count > 32",
        "legal = (0, 32) if count > 64 else (0, 64) if count > 32",
        "96 partitions may start at 32",
        conformance("views", "vector_copies", "vector_elementwise"),
    ),
    Mutation(
        CHECKING,
        "(0, 64) if count > 32 else (0, 32, 64, 96)",
        "(0, 64) if count > 48 else (0, 32, 64, 96)",
        "33 partitions may start at 32",
        conformance("views", "vector_copies", "vector_elementwise"),
    ),
    Mutation(
        INSTRUCTION,
        "for n, o in operands.items() if o.is_read)[1:]",
        "for n, o in operands.items() if o.is_read)[9:]",
        "results overwrite operands that are still needed",
        (*_elementwise, *_scalar),
    ),
    Mutation(
        CHECKING,
        "if call.engine == GPSIMD and any(",
        "if call.engine == SYNC and any(",
        "GpSimd reaches PSUM",
        (*_copies, *_elementwise),
    ),
    Mutation(
        MACHINE,
        "[view.first_partition : view.first_partition + view.partitions]",
        "[: view.partitions]",
        "accumulators ignore the partition",
        (*_running, *_scalar),
    ),
    Mutation(
        RULES,
        "if used and engines and call.engine not in engines:",
        "if False:",
        "GpSimd copies what .indirect() gathers",
        conformance("vector_indirect"),
    ),
    # -- numbers and flags
    Mutation(CHECKING, "key.append(hashable(value))", "key.append(type(value))", "numbers are checked once", _values),
    Mutation(INSTRUCTION, "flag(self.name, name, arguments[name])", "bool(arguments[name])", "any flag", _values),
    Mutation(VALUES, "and value in (0, 1)", "", "2 is a flag", _values),
    Mutation(VALUES, "return abs(plain) < BEYOND_FLOAT32 or", "return True or", "1e39 is infinite", _values),
    Mutation(VALUES, "2.0**128 - 2.0**103", "2.0**127", "float32 ends early", _values),
    Mutation(DTYPES, 'frozenset(FORMATS) - {"int64"}', "frozenset(FORMATS)", "engines take int64", _values),
    Mutation(RULES, "-(2**31) <= value < 2**32", "True", "bit operators take 33 bits", _elementwise),
    Mutation(COPIES, 'fits("src"), ', "", "predicated copy wraps a number", _copies),
    Mutation(RUNNING, '        operand_of("op0", "imm0"),\n', "", "cumulative ignores the operand of abs", _running),
    Mutation(ELEMENTWISE, "np.where(y < 0, fractions, ", "np.where(True, fractions, ", "powers round", _elementwise),
    Mutation(SCALAR, "    if np.isnan(least):\n", "    if False:\n", "one NaN hides other inputs", _operators),
    Mutation(
        ELEMENTWISE, "    if generation < 4:\n", "    if generation < 3:\n", "any operator on Scalar", _elementwise
    ),
    # -- Vector Engine: copies
    Mutation(
        COPIES,
        "chosen = predicate == 0 if reverse_pred else predicate != 0\n    if not",
        "chosen = predicate != 0\n    if not",
        "predicated copy ignores reverse_pred",
        _copies,
    ),
    Mutation(
        COPIES,
        "return np.where(chosen, src, dst)",
        "return np.where(chosen, src, 0)",
        "predicated copy clears what it should keep",
        _copies,
    ),
    Mutation(
        COPIES,
        "(rows - rows % QUADRANT + mask)[changed]",
        "mask[changed]",
        "stream shuffle reads the first quadrant only",
        _copies,
    ),
    Mutation(
        COPIES,
        "changed = mask != UNCHANGED",
        "changed = mask >= 0\n    mask = mask % QUADRANT",
        "stream shuffle: 255 is a source",
        _copies,
    ),
    Mutation(
        COPIES,
        "legal = {32: (0, 32, 64, 96), 64: (0, 64)}.get(active, (0,))",
        "legal = (0, 32, 64, 96)",
        "stream shuffle forgets the start rule",
        _copies,
    ),
    Mutation(
        COPIES,
        "if not low <= value <= high:",
        "if value > high:",
        "memset takes negative numbers for unsigned tiles",
        _copies,
    ),
    Mutation(
        COPIES,
        "random_fractions(tile.first_partition, *data.shape) < prob",
        "random_fractions(tile.first_partition, *data.shape) >= prob",
        "dropout keeps what it should drop",
        _reductions,
    ),
    # -- Vector Engine: element-wise
    Mutation(
        ELEMENTWISE,
        "    if words:",
        "    if False:",
        "32-bit integers go through float32 on GpSimd",
        _elementwise,
    ),
    Mutation(
        ELEMENTWISE,
        "exact = all(t.dtype in WORDS and t.buffer.space is not PSUM for t in tensors)",
        "exact = all(t.dtype in WORDS for t in tensors)",
        "integers in PSUM are sent to GpSimd",
        _elementwise,
    ),
    Mutation(
        ELEMENTWISE,
        "    return integers.astype(np.int64)",
        "    return integers",
        "integer results saturate instead of wrapping",
        (*_elementwise, *_operators),
    ),
    Mutation(
        ELEMENTWISE,
        "        result = ordered(op1, result, operand1, reverse1, out=dst)",
        "        result = ordered(op1, result, operand0, reverse1, out=dst)",
        "tensor_scalar: op1 takes operand0",
        _elementwise,
    ),
    Mutation(
        ELEMENTWISE,
        "        result = ordered(op1, result, operand1, reverse1, out=dst)",
        "        result = ordered(op1, result, operand1, reverse0, out=dst)",
        "tensor_scalar: op1 follows reverse0",
        _elementwise,
    ),
    Mutation(
        ELEMENTWISE,
        "return ordered(op1, ordered(op0, data, operand0, reverse0, out=dst), operand1, reverse1, out=dst)",
        "return ordered(op1, ordered(op0, data, operand0, reverse0, out=dst), operand1, not reverse1, out=dst)",
        "scalar_tensor_tensor: reverse1 is turned",
        _elementwise,
    ),
    Mutation(
        ELEMENTWISE,
        "ops in ((MULTIPLY, ADD), (MULTIPLY,), (ADD,))",
        "ops in ((MULTIPLY, ADD), (ADD, MULTIPLY), (MULTIPLY,), (ADD,))",
        "the Scalar Engine adds before it multiplies",
        _elementwise,
    ),
    # -- Vector Engine: reductions
    Mutation(
        REDUCTIONS,
        "    return -result.astype(np.float32, copy=False) if negate else result",
        "    return result",
        "tensor_reduce ignores negate",
        _reductions,
    ),
    Mutation(
        REDUCTIONS,
        "values[..., 0] - values[..., 1:].sum(axis=-1)",
        "values.sum(axis=-1)",
        "reduction by subtract adds",
        _reductions,
    ),
    Mutation(
        REDUCTIONS,
        "result = reduce_last(op, dtypes.to_float32(values))",
        "result = reduce_last(op, values)",
        "tensor_reduce computes in the operand's format",
        _reductions,
    ),
    Mutation(
        REDUCTIONS,
        "((0, data[:, 0::2]), (3, data[:, 1::2]))",
        "((0, data[:, 1::2]), (3, data[:, 0::2]))",
        "bn_stats: odd elements first",
        _reductions,
    ),
    Mutation(
        REDUCTIONS,
        "np.square(part - mean).sum(axis=1)",
        "np.square(part - mean).mean(axis=1)",
        "bn_stats: variance instead of variance times count",
        _reductions,
    ),
    Mutation(
        REDUCTIONS,
        "(spread + count * np.square(mean - centre[:, None])).sum(axis=1) / total",
        "spread.sum(axis=1) / total",
        "bn_aggr forgets how far the means are apart",
        _reductions,
    ),
    Mutation(
        REDUCTIONS,
        "values.mean(axis=0) if op is AVERAGE",
        "values.sum(axis=0) if op is AVERAGE",
        "average over partitions is a sum",
        _reductions,
    ),
    Mutation(
        RULES,
        "axes != tuple(range(axes[0], data.ndim))",
        "axes != tuple(range(axes[0], axes[-1] + 1))",
        "tensor_reduce takes axes that are not the last",
        _reductions,
    ),
    # -- Vector Engine: running results and accumulators
    Mutation(
        RUNNING,
        "        inner = ordered(op0, left[i], state, reverse0)",
        "        inner = ordered(op0, left[i], state, not reverse0)",
        "scan: the operands of op0 are swapped",
        _running,
    ),
    Mutation(
        RUNNING,
        "        state[...] = ordered(op1, inner, right[i], reverse1)",
        "        state[...] = ordered(op1, inner, right[i], False)",
        "scan ignores reverse1",
        _running,
    ),
    Mutation(
        RUNNING,
        "            result[:, i] -= result[:, i - 1]",
        "            result[:, i] = result[:, i - 1] - result[:, i]",
        "cumulative subtract: register minus element",
        _running,
    ),
    Mutation(
        RUNNING,
        "    registers[...] = result[:, -1:]\n",
        "",
        "cumulative does not leave its last value behind",
        _running,
    ),
    Mutation(
        RUNNING,
        "        registers[...] = op.identity",
        "        registers[...] = 0",
        "accumulators always start from zero",
        _running,
    ),
    Mutation(
        RUNNING, "        registers[...] = initial", "        registers[...] = 0", "load_reduce does not load", _running
    ),
    Mutation(
        RUNNING,
        "return result, -registers if reduce_res_negate else registers",
        "if reduce_res_negate:\n        registers *= -1\n    return result, registers",
        "reduce_res_negate changes the accumulators",
        _running,
    ),
    Mutation(RUNNING, "        registers[...] = np.nan\n", "", "an idle command keeps the accumulators", _running),
    Mutation(
        RUNNING,
        "result = np.subtract(src, max_value, out=dst)",
        "result = np.add(src, max_value, out=dst)",
        "exponential adds max_value",
        _running,
    ),
    Mutation(
        RUNNING,
        "position = range_start + np.arange",
        "position = 1 + range_start + np.arange",
        "range_select counts from one",
        _running,
    ),
    Mutation(
        RUNNING,
        "comp_op0.binary(position, bound0) & comp_op1",
        "comp_op0.binary(position, bound0) | comp_op1",
        "range_select: one bound is enough",
        _running,
    ),
    Mutation(
        RUNNING,
        "chosen = predicate == 0 if reverse_pred else predicate != 0\n    result",
        "chosen = ~predicate if reverse_pred else predicate != 0\n    result",
        "select_reduce complements bits instead of truth",
        _running,
    ),
    Mutation(
        RUNNING,
        'accumulate("on_true", reduce_op, result, reduce_cmd)',
        'accumulate("on_true", reduce_op, on_true, reduce_cmd)',
        "select_reduce reduces before it selects",
        _running,
    ),
    # -- Vector Engine: searches
    Mutation(
        SEARCH, "return np.sort(largest, axis=1)[:, ::-1]", "return np.sort(largest, axis=1)", "max8 ascends", _search
    ),
    Mutation(
        SEARCH,
        "return _matches(data, vals, range(8))",
        "return _matches(data, vals, range(7, -1, -1))",
        "find_index8 gives repeated values in descending order",
        _search,
    ),
    Mutation(
        SEARCH,
        "found = _matches(data, vals, range(7, -1, -1))",
        "found = _matches(data, vals, range(8))",
        "match_replace8 goes through the values in ascending order",
        _search,
    ),
    Mutation(SEARCH, " & ~taken\n", "\n", "a repeated value finds the same position again", _search),
    Mutation(SEARCH, "NOT_FOUND = -1", "NOT_FOUND = 0", "what is not found has index 0", _search),
    # -- Scalar Engine
    Mutation(
        SCALAR,
        "        value = np.multiply(value, scale, out=out)\n    if bias",
        "        value = np.multiply(value + (0 if bias is None else bias), scale, out=out)\n    elif bias",
        "activation adds before it multiplies",
        _scalar,
    ),
    Mutation(
        SCALAR,
        "        registers[...] = op.binary(registers, reduced(op, values))",
        "        registers[...] = reduced(op, values)",
        "reduce starts anew instead of going on",
        _scalar,
    ),
    Mutation(
        SCALAR,
        "        registers[...] = 0 if op is None else op.identity",
        "        registers[...] = 0",
        "activate2 reduces from zero whatever the operator",
        _scalar,
    ),
    Mutation(
        SCALAR,
        "return result, accumulate(reduce_op, result, commands.reset_reduce)",
        "return result, accumulate(reduce_op, result, commands.reduce)",
        "activation_reduce goes on from before",
        _scalar,
    ),
    Mutation(
        SCALAR,
        "size = np.abs(values[:, ::-1])",
        "size = values[:, ::-1]",
        "abs_max reduces by the signed value",
        _scalar,
    ),
    Mutation(
        SCALAR,
        "value if op1 is BYPASS else ordered(op1, value, imm1, reverse1, out=dst)",
        "value if op1 is BYPASS else ordered(op1, value, imm1, reverse0, out=dst)",
        "activate2: op1 follows reverse0",
        _scalar,
    ),
    Mutation(
        SCALAR,
        'if scale is not None and scale.dtype != "float32":',
        "if scale is None:",
        "activation takes a scale tile of any format",
        _scalar,
    ),
    # -- Tensor Engine
    Mutation(
        ACCUMULATION,
        "covered = False if accumulate is False else history.covered(dst)",
        "covered = history.covered(dst)",
        "accumulate=False adds",
        _tensor,
    ),
    Mutation(
        ACCUMULATION,
        "np.where(covered, old + new, new)",
        "old + new",
        "overlapping matmuls add where nothing was written",
        _tensor,
    ),
    Mutation(
        ACCUMULATION,
        "        np.add(memory, product(left, right, out=_scratch(core, *memory.shape)), out=memory)",
        "        product(left, right, out=memory)",
        "later matmuls overwrite",
        _tensor,
    ),
    Mutation(
        TENSOR, "if (stationary in WIDE) != (moving in WIDE):", "if False:", "float32 multiplies with bfloat16", _tensor
    ),
    Mutation(
        TENSOR,
        'return dtypes.to_tfloat32(values) if current_core().operands[name].dtype == "tfloat32" else values',
        "return values",
        "the array reads all digits of tfloat32",
        _dtypes,
    ),
    Mutation(TENSOR, "if first // bank != last // bank:", "if False:", "a matmul crosses PSUM banks", _tensor),
    Mutation(
        TENSOR,
        "return data[values.argmax(axis=0)].T",
        "return data[values.argmax(axis=1)].T",
        "is_transpose permutes the other way",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "        left, right = (x.reshape(x.shape[0] * 2, -1) for x in (left, right))",
        "        left, right = (x[:, : x.shape[1] // 2] for x in (left, right))",
        "double_row contracts over half",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "        return None\n    return data.T",
        "        return None\n    return data.T[::-1]",
        "nc_transpose flips its rows on the Vector Engine",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "store_transposed(dst, data.T)",
        "store_transposed(dst, data.T[::-1])",
        "nc_transpose flips its rows on the Tensor Engine",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "return target.number == 3 and dst.dtype in FP8",
        "return target.number > 4 and dst.dtype in FP8",
        "gen3 transposes fp8 to 8 bits",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "for step in (dst.row_elements, dst.offset, *steps)",
        "for step in (dst.row_elements, *steps)",
        "fp8 transposes may begin at an upper half",
        _tensor,
    ),
    Mutation(
        TENSOR,
        "most = PE_ROWS if call.engine == TENSOR else 32",
        "most = PE_ROWS",
        "the Vector Engine transposes more than 32 x 32",
        _tensor,
    ),
)
