"""Every way of loading the package, each in a clean process, over HTTP where the way asks a Hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub.conftest import Package
from tests.hub.hosts import Host
from tests.hub.server import Hub
from tests.hub.ways import BY_NAME, WAYS, Way, walk

# Three seconds and more each, most of it for importing torch and transformers: the others run in `make test-all`.
QUICK = {("get_kernel", "cpu"), ("offline", "cpu"), ("attn_implementation", "cpu"), ("registry", "neuron")}

ROWS = [
    pytest.param(
        way,
        device,
        id=f"{way.name}-{device}",
        marks=[] if (way.name, device) in QUICK else [pytest.mark.slow],
    )
    for way in WAYS
    for device in ("cpu", "neuron")
]


@pytest.mark.parametrize(("way", "device"), ROWS)
def test_way(way: Way, device: str, package: Package, hub: Hub, endpoint: str, tmp_path: Path) -> None:
    if way.trusted:
        hub.trusted = frozenset({"org"})
    host = Host(tmp_path, neuron=device == "neuron", environment={"HF_ENDPOINT": endpoint})
    printed = walk(way, host, package.dist)
    assert f"_vit_neuron_{device}_" in printed or way.name == "registry"  # the variant of this host
    asked = [request for request in hub.requests if "/kernels/" in request]
    assert bool(asked) == (way.name not in ("get_local_kernel", "LOCAL_KERNELS", "LocalLayerRepository"))


def test_every_way_of_the_list_is_there() -> None:
    assert len(BY_NAME) == len(WAYS) == 12
