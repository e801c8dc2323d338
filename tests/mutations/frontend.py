"""Mutations of what kernels are written in: views, the language, registers, loops, versions, arguments."""

from __future__ import annotations

from .mutation import Mutation, conformance

VIEW, TENSOR, STRIDES, REGISTERS, KERNEL, ARGUMENTS, OBJECT, FACADE, MACHINE, INSTRUCTION = (
    f"nki_sim/{name}.py"
    for name in ("view", "tensor", "strides", "registers", "kernel", "arguments", "nkiobject", "facade")
    + ("machine", "instruction")
)
ELEMENTWISE, UNARY, ROUNDING, REDUCTIONS, COMPOSITE, FILLED, MOVEMENT, LOOPS, GRIDS, CONTROL, SHAPES = (
    f"nki_sim/language/{name}.py"
    for name in ("elementwise", "unary", "rounding", "reductions", "composite", "filled", "movement", "loops", "grids")
    + ("control", "tiles_like")
)
ISA_REGISTERS, COMPILER = "nki_sim/isa/registers.py", "nki_sim/compiler.py"
CHECKING, CONTENTS, VALUES, EDGES = (f"nki_sim/{name}.py" for name in ("checking", "contents", "values", "edges"))

_views, _functions, _tensors = conformance("views"), conformance("language_functions"), conformance("language_tensors")
_registers, _loops, _versions = conformance("registers"), conformance("loops"), conformance("versions")
_schedule = ("tests/nki_sim/test_schedule.py",)
_arguments, _grids, _kinds = conformance("arguments"), conformance("grids"), conformance("language_arguments")

ROWS: tuple[Mutation, ...] = (
    # -- views
    Mutation(VIEW, "least = min(2 if on_chip else 1,", "least = min(1,", "an int leaves one dim on chip", _views),
    Mutation(
        VIEW, "keep = item, 1, on_chip and dim == 0", "keep = item, 1, False", "an int drops the partition", _views
    ),
    Mutation(VIEW, "strides.append(stride * step)", "strides.append(stride)", "steps are taken for 1", _views),
    Mutation(
        VIEW, "(stop - start + step - 1) // step", "(stop - start) // step", "a ragged step loses its last", _views
    ),
    Mutation(VIEW, "if not (0 <= start < stop <= extent):", "if False:", "slices may leave the tensor", _views),
    Mutation(VIEW, "if step > 1 and dim == 0 and stop", "if False and stop", "partitions are strided", _views),
    Mutation(
        VIEW, "start: int = index + extent if index < 0 else index", "start: int = index", "negative ints", _views
    ),
    Mutation(VIEW, "if start < 0 or start + count > extent:", "if start < 0:", "ints beyond the end", _views),
    Mutation(VIEW, "if dynamic is not None or old is not None:", "if False:", "two run-time indices", _views),
    Mutation(
        VIEW,
        'dynamic = Indirection("scalar", start, stride,',
        'dynamic = Indirection("scalar", start, 1,',
        "a run-time index counts elements",
        _views,
    ),
    Mutation(VIEW, "if index.dtype == INT64 and self.on_chip:", "if False:", "int64 scalars address SBUF", _registers),
    Mutation(TENSOR, "shape[dim], steps[dim] = size, 0", "shape[dim], steps[dim] = size, 1", "broadcast", _views),
    Mutation(TENSOR, "if dims[0] != 0:", "if False:", "the partition is permuted", _views),
    Mutation(TENSOR, "if self.shape[dim] != 1 or self.ndim <= least:", "if False:", "a long dim is squeezed", _views),
    Mutation(
        TENSOR,
        'base = self.offset if old == new else self._rescaled("offset", self.offset, old, target)',
        "base = 0",
        ".ap forgets the view's offset",
        _views,
    ),
    Mutation(
        TENSOR, "        if rest:\n", "        if False:\n", "bytes that no element of .ap covers are cut off", _kinds
    ),
    Mutation(TENSOR, "if not all(groups) or not all(", "if not all(", "names of rearrange may be missing", _kinds),
    Mutation(VALUES, "return index(value)", "return int(value)", "1.5 is taken for 1", _kinds),
    Mutation(
        VIEW, "* dtypes.itemsize(self.dtype) // allocation.row_bytes", "// self.row_elements", "uneven rows", _kinds
    ),
    Mutation(
        VIEW,
        "NO_STORAGE if storage is None else storage",
        "storage",
        "a tensor without storage fails in Python's words",
        _kinds,
    ),
    Mutation(
        TENSOR, "if offset is not None and self.offset:", "if False:", "no warning of an offset on a view", _views
    ),
    Mutation(
        TENSOR,
        "if self.strides[0] != row:",
        "if False:",
        "the partition stride of .ap is free",
        _views,
    ),
    Mutation(
        TENSOR,
        'stride = self._rescaled(f"stride of dim {dim}", self.strides[dim], dtypes.itemsize(self.dtype), target)',
        "stride = 1",
        "scalar_offset counts elements",
        _views,
    ),
    Mutation(
        TENSOR, "if not 0 <= start < self.indirection.extent:", "if False:", "run-time indices go anywhere", _views
    ),
    Mutation(
        TENSOR,
        "self.offset * old // new,\n        )\n        view.dtype",
        "self.offset,\n        )\n        view.dtype",
        "a reinterpreted window starts elsewhere",
        _views,
    ),
    Mutation(STRIDES, "if outer != extent * inner:", "if False:", "dims with gaps are merged", _views),
    Mutation(CONTENTS, "memory.strides[1] == 0 and memory.shape[1] > 1", "False", "sums of one element", _views),
    Mutation(CHECKING, "if extent > LONGEST_DIM or", "if False or", "a dim longer than 16 bits", _views),
    # -- edges between instructions
    Mutation(EDGES, "if place < position:", "if place > position:", "edges turn around", _schedule),
    Mutation(EDGES, "if name == start:", "if False:", "an instruction waits for itself", _schedule),
    Mutation(
        KERNEL,
        "made.debugging.changed(changes), made.schedule)",
        "made.debugging.changed(changes))",
        "simulate forgets the schedule",
        _schedule,
    ),
    # -- functions of the language
    Mutation(ELEMENTWISE, "reverse0=number is x)", "reverse0=False)", "2 - x is x - 2", _functions),
    Mutation(
        ELEMENTWISE,
        'return _remainder("mod", x, y, y, dtype)',
        'return _remainder("mod", x, y, x, dtype)',
        "mod has the sign of x",
        _functions,
    ),
    Mutation(
        ELEMENTWISE,
        "combine(MULTIPLY, combine(GREATER_EQUAL, rest, size), size)",
        "combine(MULTIPLY, combine(LESS, rest, -1.0), size)",
        "41 modulo 41 is 41",
        _functions,
    ),
    Mutation(ELEMENTWISE, "_applied(SIGN, signed)", "_applied(SIGN, y)", "fmod has the sign of y", _functions),
    Mutation(ELEMENTWISE, "np.divide(1.0, y)", "1.0 / y", "Python divides by zero", _functions),
    Mutation(SHAPES, "if x.shape[0] != shape[0]:", "if False:", "partitions stretch", _functions),
    Mutation(SHAPES, "or axes[0] == 0 or", "or", "the partition is reduced", _functions),
    Mutation(ROUNDING, "predicate=small, reverse_pred=True", "predicate=small", "rounding keeps fractions", _functions),
    Mutation(
        ROUNDING,
        '_rounded(tile("ceil", "x", x), LESS, ADD',
        '_rounded(tile("ceil", "x", x), GREATER, SUBTRACT',
        "ceil is floor",
        _functions,
    ),
    Mutation(UNARY, "for part in TURN:", "for part in TURN[:1]:", "turns are rounded", _functions),
    Mutation(
        UNARY, "    _take_turns(angle)\n    # The", "    # The", "the phase of a cosine leads out of a turn", _functions
    ),
    Mutation(
        UNARY, "op0=MULTIPLY, operand0=0.0, op1=ADD", "op0=MULTIPLY, operand0=0.0, op1=MAXIMUM", "sin(inf)", _functions
    ),
    Mutation(UNARY, "operand0=-2.0, op1=ADD", "operand0=2.0, op1=ADD", "arctan beyond 1", _functions),
    Mutation(UNARY, "engine=nisa.engine.gpsimd)", "engine=nisa.engine.vector)", "rsqrt reads PSUM", _functions),
    Mutation(UNARY, "XOR if x.dtype in dtypes.INTEGERS else LOGICAL_XOR", "LOGICAL_XOR", "not of 2 is 0", _functions),
    Mutation(
        REDUCTIONS,
        'mean(x, axis, "float32", True), x, "var")',
        'mean(x, axis, "bfloat16", True), x, "var")',
        "the mean of a variance is rounded",
        _functions,
    ),
    Mutation(REDUCTIONS, "operand0=1.0 / count(", "operand0=1.0 * count(", "a mean multiplies", _functions),
    Mutation(
        COMPOSITE,
        'data1=x, data2=spread(largest, x, "softmax"), op=SUBTRACT',
        'data1=x, data2=spread(largest, x, "softmax"), op=ADD',
        "softmax overflows",
        _functions,
    ),
    Mutation(COMPOSITE, "if not flag(", "if flag(", "matmul transposes the wrong way", _functions),
    Mutation(
        COMPOSITE, "/ n,\n", '/ count(x, trailing_axes(x, axis, "rms_norm")),\n', "rms_norm ignores n", _functions
    ),
    Mutation(FILLED, "operand0=2.0**-24", "operand0=2.0**-23", "random numbers up to 2", _tensors),
    Mutation(FILLED, "if (n, kind) not in kept:", "if True:", "every identity has a constant of its own", _tensors),
    Mutation(FILLED, "if anew or not filled:", "if anew:", "HBM is filled with nothing", _tensors),
    Mutation(MOVEMENT, "(1, *src.shape)", "(*src.shape, 1)", "a row is loaded as a column", _tensors),
    Mutation(
        MOVEMENT, "range(0, rows, SHUFFLED)", "range(0, SHUFFLED, SHUFFLED)", "32 partitions of a broadcast", _tensors
    ),
    Mutation(MOVEMENT, "if tensor.on_chip:", "if False:", "load and store take tiles", _tensors),
    # -- registers and loops
    Mutation(
        REGISTERS, "return (int(value) + half) % (2 * half) - half", "return int(value)", "nothing wraps", _registers
    ),
    Mutation(REGISTERS, "if other.dtype != self.dtype:", "if False:", "int32 + int64", _registers),
    Mutation(
        REGISTERS,
        "function(value, self.state) if swapped",
        "function(self.state, value) if swapped",
        "3 - i",
        _registers,
    ),
    Mutation(
        REGISTERS,
        '        if settings.at_least("0.7"):\n            self._opaque(use)\n',
        "",
        "0.7 looks at registers",
        _registers,
    ),
    Mutation(ISA_REGISTERS, "value & 0xFFFFFFFF", "value & 0xFFFF", "registers of 16 bits", _registers),
    Mutation(
        ISA_REGISTERS, "dst.state = None  # known", "pass  # known", "a load that did not run is known", _registers
    ),
    Mutation(ISA_REGISTERS, "if dst.frozen:", "if False:", "the index of dynamic_range is written", _loops),
    Mutation(
        LOOPS, "yield from range(first, last, step)", "yield from range(first, last)", "the step of a loop", _loops
    ),
    Mutation(
        LOOPS, "body_fun(VirtualRegister(condition.state))", "body_fun(condition)", "a condition by reference", _loops
    ),
    Mutation(LOOPS, "not condition.current():", "condition.current():", "while_loop runs on zero", _loops),
    Mutation(LOOPS, 'self.core.state.get("no_reorder", 0):', "False:", "loops inside no_reorder", _loops),
    Mutation(LOOPS, "core.scopes.remove(self.scope)", "pass", "a body's tensors live on", _loops),
    Mutation(LOOPS, "if result is not None:", "if False:", "a body returns something", _loops),
    Mutation(LOOPS, "isinstance(bound, NkiScalar) and bound.dtype == INT64:", "False:", "64-bit bounds", _loops),
    Mutation(LOOPS, "for key in (self.name, line):", "for key in (self.name,):", "trip counts by line", _loops),
    Mutation(MACHINE, "scope.names.add(key)", "pass", "names of a body are taken twice", _loops),
    Mutation(
        INSTRUCTION,
        "if producer.scopes != self.scopes[: len(producer.scopes)]:",
        "if False:",
        "edges into loops",
        _loops,
    ),
    # -- versions, arguments, objects
    Mutation(FACADE, "names.update(dynamic_range=loops.dynamic_range)", "pass", "0.6 has no dynamic_range", _versions),
    Mutation(COMPILER, 'if not settings.at_least("0.7"):', "if False:", "0.6 takes compile_config", _versions),
    Mutation(
        CONTROL, "lambda g: g.sbuf_usable_bytes // 4", "lambda g: g.sbuf_usable_bytes", "sbuf_fmax in bytes", _versions
    ),
    Mutation(KERNEL, "if mine is None or mine == outer.compile_config:", "if True:", "nested configs", _versions),
    Mutation(
        ARGUMENTS, "made.setdefault(id(value), tensor)", "tensor", "one array, two tensors on two cores", _arguments
    ),
    Mutation(ARGUMENTS, "return self._seen[id(value)][1]", "pass", "one array, two tensors", _arguments),
    Mutation(OBJECT, "    post()\n", "    pass\n", "__post_init__ is not run", _arguments),
    Mutation(OBJECT, "setattr(cls, name, None)", "pass", "0.6 misses fields of a dataclass", _arguments),
    Mutation(OBJECT, "return vars(self) == vars(other)", "return False", "0.6 compares identity", _arguments),
    # -- grids
    Mutation(GRIDS, "min(stop * tile, size)", "stop * tile", "edge tiles are not clamped", _grids),
    Mutation(
        GRIDS,
        "offset=number * width)\n        full",
        "offset=0)\n        full",
        "every packed tile is the first",
        _grids,
    ),
    Mutation(GRIDS, "return any(size % step for size, step in whole)", "return False", "no remainders", _grids),
    Mutation(GRIDS, "if part.shape[0] != 1:", "if True:", "slabs keep their dim", _grids),
)
