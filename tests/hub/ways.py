"""Every way of loading the package, as a program that runs on a clean host; each ends by printing what it has shown.

The programs are what a user would write. Where a version of a library stands in the way, the line that gets round it
says which and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tests.hub.hosts import Host, said

COMMON = '''
import os
import torch

REPO, DEVICE = "org/vit-neuron", os.environ["DEVICE"]


def small_vit(seed=0, **options):
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(seed)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    return ViTModel(ViTConfig(image_size=16, patch_size=8, **sizes), add_pooling_layer=False).eval()


def output(model):
    with torch.no_grad():
        pixels = torch.linspace(-1, 1, 3 * 16 * 16).view(1, 3, 16, 16)
        return model(pixels.to(next(model.parameters()).device)).last_hidden_state.cpu()


def ran(vit, **calls):
    """The operations ran, as often as given, and where this host has to run them."""
    for op, count in calls.items():
        found = vit.stats()[op]
        kernel, reference = found.kernel, sum(found.reference.values())
        assert (kernel, reference) == ((count, 0) if DEVICE == "neuron" else (0, count)), f"{op}: {found}"


def works(vit):
    """The operations of a loaded package give what torch gives."""
    torch.manual_seed(0)
    x, weight, bias = torch.randn(5, 32), torch.randn(32), torch.randn(32)
    expected = torch.nn.functional.layer_norm(x, (32,), weight, bias, 1e-6)
    vit.reset_stats()
    actual = vit.layer_norm(x.to(DEVICE), weight.to(DEVICE), bias.to(DEVICE), 1e-6)
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-5, rtol=1e-5)
    ran(vit, layer_norm=1)
    print("loaded", vit.__name__)


def loaded(name_part="_vit_neuron_"):
    """The package that a library has loaded for us."""
    import sys

    (name,) = [name for name in sys.modules if name.startswith(name_part) and "." not in name]
    return sys.modules[name]
'''


@dataclass(frozen=True)
class Way:
    """`program` runs after COMMON; `setup`, if any, ran before it in a process of its own, on the same host, online.

    `trusted`: needs a publisher whom the Hub trusts. LOCAL, in the environment, is a folder with the build.
    """

    name: str
    program: str
    setup: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    trusted: bool = False


GET_KERNEL = """
from kernels import get_kernel
works(get_kernel(REPO, version=1, trust_remote_code=True))
"""

KERNELIZE = """
from kernels import Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping
from transformers.models.vit.modeling_vit import ViTMLP
{repository}
model = small_vit().to(DEVICE)
expected = output(model)
# A class carries its hook for all of its subclasses: the condition keeps the swap to the class itself.
replace_kernel_forward_from_hub(ViTMLP, "ViTMLP", condition=lambda module: type(module) is ViTMLP)
with use_kernel_mapping({{"ViTMLP": {{DEVICE: repository}}}}, inherit_mapping=False):
    kernelize(model, mode=Mode.INFERENCE, device=DEVICE)
torch.testing.assert_close(output(model), expected, atol=1e-4, rtol=1e-4)
ran(loaded(), mlp=2)
print("kernelized", loaded().__name__)
"""

LOCK = """
import sys
from kernels.cli import main
with open("pyproject.toml", "w") as file:
    file.write('[tool.kernels.dependencies]\\n"org/vit-neuron" = 1\\n')
sys.argv = ["kernels", "lock", "."]
main()
"""

LOCKED = """
from pathlib import Path
from kernels import get_locked_kernel
# lockfile must be given, although published examples leave it out.
works(get_locked_kernel(REPO, lockfile=Path("kernels.lock"), trust_remote_code=True))
"""

USE_KERNELS = """
from kernels import replace_kernel_forward_from_hub
from transformers import KernelConfig, ViTModel
from transformers.models.vit.modeling_vit import ViTMLP
from transformers.utils import kernel_config

model = small_vit().to(DEVICE)
expected = output(model)
model.save_pretrained("checkpoint")
# Transformers puts no hook on this class, and does not list "cpu" among the devices that have kernels.
replace_kernel_forward_from_hub(ViTMLP, "ViTMLP", condition=lambda module: type(module) is ViTMLP)
if DEVICE == "cpu":
    kernel_config.KERNELS_SUPPORTED_DEVICE_TYPES.append("cpu")
config = KernelConfig({"ViTMLP": (f"{REPO}:MLP", {"version": 1, "trust_remote_code": True})})
model = ViTModel.from_pretrained(
    "checkpoint", use_kernels=True, kernel_config=config, device_map=DEVICE, add_pooling_layer=False
)
torch.testing.assert_close(output(model), expected, atol=1e-4, rtol=1e-4)
ran(loaded(), mlp=2)
print("use_kernels", loaded().__name__)
"""

ATTN = """
from transformers import ViTModel

model = small_vit().to(DEVICE)
expected = output(model)
model.save_pretrained("checkpoint")
model = ViTModel.from_pretrained(
    "checkpoint", attn_implementation=REPO, allow_all_kernels=True, device_map=DEVICE, add_pooling_layer=False
)
torch.testing.assert_close(output(model), expected, atol=1e-4, rtol=1e-4)
ran(loaded(), attention=2)
print("attn_implementation", loaded().__name__)
"""

# An ordinary online load leaves neither the branch's name nor the other variants in the cache.
DOWNLOAD_ALL = """
from huggingface_hub import snapshot_download
snapshot_download("org/vit-neuron", repo_type="kernel", revision="v1")
"""

TWO_VERSIONS = """
from kernels import get_kernel
one = get_kernel(REPO, version=1, trust_remote_code=True)
two = get_kernel(REPO, version=2, trust_remote_code=True)
assert one.__name__ != two.__name__ and one.layer_norm is not two.layer_norm
works(one)
works(two)
ran(one, layer_norm=1)  # nothing of the second was counted by the first

model, other = small_vit().to(DEVICE), small_vit().to(DEVICE)
one.registry.apply(model)
two.registry.apply(other)
one.reset_stats()
two.reset_stats()
output(other)
assert not one.stats() and two.stats()
print("two versions", one.__name__, two.__name__)
"""

REGISTRY = """
import sys
from kernels import get_kernel

vit = get_kernel(REPO, version=1, trust_remote_code=True)
model = small_vit().to(DEVICE)
expected = output(model)
report = vit.registry.apply(model)
vit.reset_stats()
torch.testing.assert_close(output(model), expected, atol=1e-4, rtol=1e-4)
assert not report.left, str(report)
ran(vit, attention=2, mlp=2, layer_norm=5)
homes = {module.forward.__func__.__module__.split(".")[0] for module in model.modules() if "forward" in vars(module)}
assert homes == {vit.__name__}, homes  # the layers of this very package
vit.registry.revert(model)
assert torch.equal(output(model), expected)
print(report)
"""

VERIFIED = """
from vit_neuron_tools import hub

pin = hub.pin(REPO, 1)
vit = hub.load(REPO, version=1, digest=pin.digest, commit=pin.commit)
works(vit)
model = small_vit().to(DEVICE)
assert not vit.registry.apply(model).left
"""

WAYS = (
    Way("get_kernel", GET_KERNEL),
    Way("get_local_kernel", "from kernels import get_local_kernel\nfrom pathlib import Path\n"
        'works(get_local_kernel(Path(os.environ["LOCAL"])))'),
    Way("LOCAL_KERNELS", GET_KERNEL.replace(", trust_remote_code=True", ""),
        environment=(("LOCAL_KERNELS", "org/vit-neuron={local}"), ("HF_HUB_OFFLINE", "1"))),
    Way("LayerRepository", KERNELIZE.format(repository="""
from kernels import LayerRepository
repository = LayerRepository(REPO, layer_name="MLP", version=1, trust_remote_code=True)""")),
    Way("LocalLayerRepository", KERNELIZE.format(repository="""
from kernels import LocalLayerRepository
from pathlib import Path
repository = LocalLayerRepository(Path(os.environ["LOCAL"]), layer_name="MLP")""")),
    # `kernels lock` has no flag for trust; get_locked_kernel has one.
    Way("locked", LOCKED, setup=LOCK, trusted=True),
    Way("use_kernels", USE_KERNELS),
    Way("attn_implementation", ATTN),
    Way("offline", GET_KERNEL, setup=DOWNLOAD_ALL, environment=(("HF_HUB_OFFLINE", "1"),)),
    Way("two_versions", TWO_VERSIONS),
    Way("registry", REGISTRY),
    Way("verified", VERIFIED),
)  # fmt: skip
BY_NAME = {way.name: way for way in WAYS}


def walk(way: Way, host: Host, local: Path) -> str:
    """Run a way on a host; returns what it printed. AssertionError with the end of its output when it fails."""
    if way.name == "verified":
        host = replace(host, ours=("vit_neuron_tools",))
    if way.setup:
        done = host.run(way.setup)
        assert done.returncode == 0, said(done)
    environment = {name: value.format(local=local) for name, value in way.environment}
    done = host.run(COMMON + way.program, LOCAL=str(local), **environment)
    assert done.returncode == 0, said(done)
    return done.stdout
