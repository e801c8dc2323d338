"""loading(): models come out swapped, for the one who asked, and nothing of it stays behind."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from transformers import AutoModel, AutoModelForImageClassification, PreTrainedModel, ViTModel

from tests.tolerances import assert_close
from vit_neuron import registry
from vit_neuron.swap.loaders import Loader, Loaders

from .inputs import double
from .models import outputs, vit


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    vit().save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    original = vars(PreTrainedModel)["from_pretrained"]
    yield
    assert vars(PreTrainedModel)["from_pretrained"] is original


@pytest.mark.parametrize("route", [ViTModel, AutoModel, AutoModelForImageClassification])
def test_from_pretrained(route: Any, checkpoint: Path) -> None:
    expected = route.from_pretrained(checkpoint)
    with registry.loading():
        model = route.from_pretrained(checkpoint)
    report = registry.report_of(model)
    assert report is not None
    assert report.left == ()
    assert registry.report_of(expected) is None
    assert type(model) is type(expected)
    if route is not AutoModelForImageClassification:  # whose head has random weights
        for got, want in zip(outputs(model), outputs(expected), strict=True):
            assert_close(got, double(want))


def test_with_loading_info(checkpoint: Path) -> None:
    with registry.loading():
        model, info = ViTModel.from_pretrained(checkpoint, output_loading_info=True)
    assert not info["missing_keys"]
    assert registry.report_of(model) is not None


def test_only(checkpoint: Path) -> None:
    with registry.loading(["mlp"]):
        model = ViTModel.from_pretrained(checkpoint)
    assert {row.kernel for row in registry.explain(model).rows if row.reason == "swapped"} == {"mlp"}


def test_the_inner_of_two_decides(checkpoint: Path) -> None:
    with registry.loading():
        with registry.loading("norm"):
            inner = ViTModel.from_pretrained(checkpoint)
        outer = ViTModel.from_pretrained(checkpoint)
    assert {row.kernel for row in registry.report_of(inner).swapped} == {"layer_norm"}
    assert {row.kernel for row in registry.report_of(outer).swapped} == {"attention", "mlp", "layer_norm"}


def test_after_an_exception(checkpoint: Path) -> None:
    with pytest.raises(OSError, match="nowhere"), registry.loading():
        ViTModel.from_pretrained("/nowhere/at/all")
    assert registry.report_of(ViTModel.from_pretrained(checkpoint)) is None


def test_unknown_operation_is_refused_before_anything_loads() -> None:
    with pytest.raises(ValueError, match="^only: got 'fast'; allowed: attention, mlp, norm"), registry.loading("fast"):
        pass


def test_another_thread_gets_its_models_untouched(checkpoint: Path) -> None:
    found: dict[str, Any] = {}

    def work() -> None:
        found["other"] = ViTModel.from_pretrained(checkpoint)

    with registry.loading():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        found["own"] = ViTModel.from_pretrained(checkpoint)
    assert registry.report_of(found["other"]) is None
    assert registry.report_of(found["own"]) is not None


def test_contexts_of_two_threads_overlap() -> None:
    """The first to come is the first to go: the wrappers stay for the other one."""
    owner = types.SimpleNamespace(load=lambda: "model")
    loaders = Loaders(lambda: [Loader(owner, "load")])
    original, seen = owner.load, []
    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with loaders.handing_to(lambda result: seen.append(("first", result))):
            entered.set()
            owner.load()

    def second() -> None:
        entered.wait()
        with loaders.handing_to(lambda result: seen.append(("second", result))):
            left.wait()
            owner.load()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    threads[0].join()
    left.set()
    threads[1].join()
    assert seen == [("first", "model"), ("second", "model")]
    assert owner.load is original


# timm and Diffusers are not needed here: what they offer to be wrapped is all that counts. ---------------------------


def test_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """create_model looks the entry point up at every call, so a name imported from timm earlier is reached as well."""
    factory = types.ModuleType("timm.models._factory")
    exec(
        "def model_entrypoint(name):\n    return MODELS[name]\n"
        "def create_model(name, **kwargs):\n    return model_entrypoint(name)(**kwargs)\n",
        vars(factory),
    )
    factory.MODELS = {"vit_tiny": lambda width: nn.Sequential(nn.LayerNorm(width))}
    install(monkeypatch, {"timm": {}, "timm.models": {"_factory": factory}, "timm.models._factory": factory})
    create_model = factory.create_model
    with registry.loading():
        model = create_model("vit_tiny", width=8)
    assert [row.kernel for row in registry.report_of(model).rows] == ["layer_norm"]
    assert registry.report_of(create_model("vit_tiny", width=8)) is None


def test_diffusers(monkeypatch: pytest.MonkeyPatch) -> None:
    class ModelMixin(nn.Module):
        @classmethod
        def from_pretrained(cls, name: str) -> Any:
            return nn.Sequential(nn.LayerNorm(8))

    class DiffusionPipeline:
        @classmethod
        def from_pretrained(cls, name: str) -> DiffusionPipeline:
            pipeline = cls()
            pipeline.components = {"transformer": nn.Sequential(nn.LayerNorm(8)), "scheduler": object()}
            return pipeline

    install(monkeypatch, {"diffusers": {"ModelMixin": ModelMixin, "DiffusionPipeline": DiffusionPipeline}})
    with registry.loading():
        model, pipeline = ModelMixin.from_pretrained("x"), DiffusionPipeline.from_pretrained("x")
    assert registry.report_of(model) is not None
    assert registry.report_of(pipeline.components["transformer"]) is not None


def test_a_broken_library_is_left_out(monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    """timm without a torchvision that fits raises RuntimeError on import; that is no concern of a ViT."""

    class Broken(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("operator torchvision::nms does not exist")

    install(monkeypatch, {"timm": {}})
    broken = Broken("timm.models")
    broken.__spec__ = sys.modules["timm"].__spec__
    monkeypatch.setitem(sys.modules, "timm.models", broken)
    with registry.loading():
        model = ViTModel.from_pretrained(checkpoint)
    assert registry.report_of(model) is not None


def install(monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]) -> None:
    """Modules that exist in memory only."""
    for name, content in modules.items():
        module = content if isinstance(content, types.ModuleType) else types.ModuleType(name)
        module.__spec__ = types.SimpleNamespace(name=name)
        if isinstance(content, dict):
            vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


def test_classmethods_keep_their_class() -> None:
    """The subclass that is asked is the class that loads."""

    class Base:
        @classmethod
        def load(cls) -> Any:
            return cls.__name__

    class Derived(Base):
        pass

    seen: list[Any] = []
    with Loaders(lambda: [Loader(Base, "load")]).handing_to(seen.append):
        assert Derived.load() == "Derived"
    assert seen == ["Derived"]
