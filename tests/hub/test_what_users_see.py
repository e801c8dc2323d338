"""What users meet beside the ways that work: refusals and the line that works instead, and hosts of other kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hub.conftest import Package, files_of
from tests.hub.hosts import Host, said
from tests.hub.server import Hub
from tests.hub.ways import COMMON, GET_KERNEL

REFUSALS = """
import json
from kernels import get_kernel

def refusal(*args, **kwargs):
    try:
        get_kernel(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"

print(json.dumps({
    "short": refusal("org/vit-neuron"),
    "no_trust": refusal("org/vit-neuron", version=1),
    "person": refusal("somebody/vit-neuron", version=1),
    "other_list": refusal("org/vit-neuron", version=1, trust_remote_code=["org/other"]),
    "no_such_version": refusal("org/vit-neuron", version=7, trust_remote_code=True),
    "no_such_repository": refusal("org/vit-nothing", version=1, trust_remote_code=True),
}))
"""

SAID = {
    "short": "ValueError: A kernel version or revision must be specified.",
    "no_trust": "ValueError: Kernel repository 'org/vit-neuron' is not from a trusted publisher. Set trust",
    "person": "ValueError: Kernel repository 'somebody/vit-neuron' could not verify publisher trust status.",
    "other_list": "ValueError: Kernel repository 'org/vit-neuron' is not from a trusted publisher.",
    "no_such_version": "ValueError: Version 7 not found, available versions: 1, 2",
    "no_such_repository": "RepositoryNotFoundError: 404 Client Error.",
}  # fmt: skip


@pytest.fixture
def host(tmp_path: Path, endpoint: str) -> Host:
    return Host(tmp_path, environment={"HF_ENDPOINT": endpoint})


def test_refusals(host: Host, hub: Hub, package: Package) -> None:
    """None of them has downloaded a file, let alone run one."""
    hub.commit("somebody/vit-neuron", "v1", files_of(package.dist))
    done = host.run(REFUSALS)
    assert done.returncode == 0, said(done)
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: text[: len(SAID[name])] for name, text in found.items()} == SAID
    assert not [request for request in hub.requests if "/resolve/" in request]


WORKS = [
    # id           the line that works                                                                     trusted
    ("allowlist", 'get_kernel(REPO, version=1, trust_remote_code=["org/vit-neuron"])', False),
    ("person", 'get_kernel("somebody/vit-neuron", version=1, trust_remote_code=True)', False),
    ("trusted_publisher", "get_kernel(REPO, version=1)", True),
    ("commit", 'get_kernel(REPO, revision=os.environ["COMMIT"], trust_remote_code=True)', False),
    ("cpu_backend", 'get_kernel(REPO, version=1, backend="cpu", trust_remote_code=True)', False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "line", "trusted"), WORKS, ids=[row[0] for row in WORKS])
def test_line_that_works(case: str, line: str, trusted: bool, host: Host, hub: Hub, package: Package) -> None:
    hub.trusted = frozenset({"org"}) if trusted else frozenset()
    hub.commit("somebody/vit-neuron", "v1", files_of(package.dist))
    commit = hub.repositories["org/vit-neuron"].branches["v1"]
    done = host.run(f"{COMMON}\nfrom kernels import get_kernel\nworks({line})", COMMIT=commit)
    assert done.returncode == 0, said(done)


def loads(build: str) -> str:
    """A host whose torch says that it was built otherwise; the tensors are on the CPU, as far as this one can go."""
    return (
        f"{COMMON}\n{build}\nfrom kernels import get_kernel\nworks(get_kernel(REPO, version=1, trust_remote_code=True))"
    )


HOSTS = [
    ("cuda", "torch.version.cuda = '12.8'", "_vit_neuron_cuda_"),
    ("rocm", "torch.version.hip = '6.3.1'", "_vit_neuron_universal_"),  # we publish no variant for it
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "build", "name"), HOSTS, ids=[row[0] for row in HOSTS])
def test_variant_of_another_host(case: str, build: str, name: str, host: Host) -> None:
    done = host.run(loads(build))
    assert f"loaded {name}" in done.stdout, said(done)


WITHOUT_NKI = """
import sys, warnings
sys.modules["nki"] = None  # as on a host where it is not installed
from kernels import get_kernel
vit = get_kernel(REPO, version=1, trust_remote_code=True)
assert vit.__name__.startswith("_vit_neuron_neuron_")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    x = torch.randn(3, 8)
    out = vit.layer_norm(x.to("neuron"), None, None, 1e-6).cpu()
torch.testing.assert_close(out, torch.nn.functional.layer_norm(x, (8,), eps=1e-6))
print([str(one.message) for one in caught])
"""


@pytest.mark.slow
def test_neuron_host_without_nki_gets_the_reference(tmp_path: Path, endpoint: str) -> None:
    host = Host(tmp_path, neuron=True, environment={"HF_ENDPOINT": endpoint})
    done = host.run(COMMON + WITHOUT_NKI)
    assert "layer_norm runs as the torch reference: nki cannot be imported; install the Neuron SDK" in done.stdout, (
        said(done)
    )


OFFLINE = """
from kernels import get_kernel
get_kernel("org/vit-neuron", version=1, trust_remote_code=True)
"""


@pytest.mark.slow
def test_offline_after_an_ordinary_load_does_not_work(host: Host) -> None:
    """A defect of kernels 0.17.2; the way round it is "offline". When this fails, the documents can lose a line."""
    assert host.run(OFFLINE).returncode == 0
    done = host.run(OFFLINE, HF_HUB_OFFLINE="1")
    assert "Version 1 of 'org/vit-neuron' is not available in the local cache" in said(done)


@pytest.mark.slow
def test_telemetry_switch_breaks_loading(host: Host) -> None:
    """A defect of kernels 0.17.2 with huggingface_hub 2.4.0: it sends a header that ends in a blank. No way round."""
    done = host.run(COMMON + GET_KERNEL, HF_HUB_DISABLE_TELEMETRY="1")
    assert "Illegal header value" in said(done)


@pytest.mark.slow
def test_attention_of_an_untrusted_repository(host: Host) -> None:
    program = """
from transformers import ViTModel
small_vit().save_pretrained("checkpoint")
ViTModel.from_pretrained("checkpoint", attn_implementation=REPO)
"""
    done = host.run(COMMON + program)
    assert "is not from a trusted publisher" in said(done)


@pytest.mark.slow
def test_one_build_from_two_places(host: Host, package: Package) -> None:
    """The same id twice in a process: the second load finds the modules of the first, and both work."""
    program = """
from pathlib import Path
from kernels import get_kernel, get_local_kernel
one = get_kernel(REPO, version=1, trust_remote_code=True)
two = get_local_kernel(Path(os.environ["LOCAL"]))
assert one.__name__ == two.__name__ and one is not two
works(one)
works(two)
"""
    done = host.run(COMMON + program, LOCAL=str(package.dist))
    assert done.returncode == 0, said(done)


@pytest.mark.slow
def test_kernels_benchmark_runs(host: Host, package: Package) -> None:
    """Hugging Face's own runner, on the folder: given a repository id, it asks for a model of that name."""
    program = f"""
import sys
from kernels.cli import main
sys.argv = ["kernels", "benchmark", {str(package.dist)!r}, "--iterations", "2", "--warmup", "1"]
main()
"""
    done = host.run(program)
    assert done.returncode == 0, said(done)
    for line in ("AttentionBenchmark", "LayerNormBenchmark", "MLPBenchmark"):
        assert line in said(done), said(done)


LAYER = """
from kernels import LayerRepository
print(LayerRepository(REPO, layer_name="MLP", {which}).load())
"""


@pytest.mark.slow
def test_layer_repository_with_local_kernels_offline(host: Host, package: Package) -> None:
    """A defect of kernels 0.17.2: with a version it asks the Hub for its branches all the same."""
    local = {"LOCAL_KERNELS": f"org/vit-neuron={package.dist}", "HF_HUB_OFFLINE": "1"}
    refused = host.run(COMMON + LAYER.format(which="version=1"), **local)
    assert "Version 1 of 'org/vit-neuron' is not available in the local cache" in said(refused)
    works = host.run(COMMON + LAYER.format(which="revision='local'"), **local)
    assert "layers.mlp.MLP" in works.stdout, said(works)
