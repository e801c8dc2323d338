"""What the kernels take, as plain numbers: read by the kernels, the public operations and the documents."""

# Element types of every kernel: what the Tensor Engine multiplies; statistics and accumulation are fp32 throughout.
DTYPES = ("bfloat16", "float16", "float32")

# layer_norm keeps weight, bias, the rows and their fp32 form in SBUF: at 8192 in fp32, 128 of 208 KiB per partition.
MAX_CHANNELS = 8192

# attention: head_dim is the contraction of the score matmul, and the Tensor Engine has 128 rows.
MAX_HEAD_DIM = 128

# attention: keys, queries, values, mask, logits and their transpose are 161 of 208 KiB per partition at 8192 in fp32.
MAX_SEQUENCE = 8192

# mlp: with these widths in fp32 the smallest block of tokens still fits beside its hidden activations.
MAX_HIDDEN = 8192
MAX_INTERMEDIATE = 32768

# mlp: names of the activation functions, as the public operation spells them.
ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "relu", "silu")

# Bytes per SBUF partition that the kernels plan with. Trainium2 has 224 KiB, of which the compiler keeps about 16
# (nl.tile_size.sbuf_fmax_bytes); the rest of the distance is left to it for double buffering.
SBUF_BUDGET_BYTES = 192 * 1024
