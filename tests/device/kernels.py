"""Small NKI kernels for the tests of this folder: a tile each, so that what is tested is the way in and out."""

import nki_sim

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def load(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def store(tile):
    y = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def scale(x, factor=2.0):
    """x * factor, for x [P, F] with P <= 128."""
    tile = load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    return store(tile)


@nki.jit
def add(x, y):
    """x + y."""
    left, right = load(x), load(y)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    return store(left)


@nki.jit
def both(x):
    """(2 x, 3 x): two results."""
    twice, thrice = load(x), load(x)
    nisa.tensor_scalar(dst=twice, data=twice, op0=nl.multiply, operand0=2.0)
    nisa.tensor_scalar(dst=thrice, data=thrice, op0=nl.multiply, operand0=3.0)
    return store(twice), store(thrice)


@nki.jit
def accumulate(total, x):
    """total += x, in place and by one core; returns x + x."""
    left, right = load(total), load(x)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=total, src=left)
    nisa.tensor_tensor(dst=right, data1=right, data2=right, op=nl.add)
    return store(right)


@nki.jit
def add_pair(pair):
    """pair[0] + pair[1]: tensors in a tuple."""
    left, right = load(pair[0]), load(pair[1])
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    return store(left)


@nki.jit
def echo(x):
    """Gives its input back, which a real launch must not."""
    return x


@nki.jit
def cores(x):
    """x [P, F] filled with the number of cores that run the kernel."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=float(nl.num_programs(0)))
    return store(tile)


def plain(x):
    """Not a kernel."""
    return x
