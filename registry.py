"""Which model layers each kernel replaces, and the swap.

    apply(model)      swap the kernels in; returns a report: layer path -> kernel, or why the layer was left alone
    revert(model)     put everything back as it was
    explain(model)    the report alone
    loading()         a context in which from_pretrained and timm.create_model return swapped models
    register(entry)   one more row

A swap keeps parameters, names, hooks and the state dict, and concerns this model only. MLPs and norms go through the
`kernels` library (kernelize rebinds the forward of the instance), attention through Transformers' AttentionInterface.
Copies made by copy.deepcopy stay swapped; a pickle opens as the original model, on any machine.
"""

import functools
import importlib.util
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Optional

from torch import nn

from .dispatch import NAMESPACE
from .swap import conditions as when
from .swap.candidates import CAN_BE_SWAPPED, NOT_SWAPPED, SWAPPED, Candidate, candidates, is_swapped
from .swap.config_view import IMPLEMENTATION, REPLACED, ConfigView, view_of
from .swap.entry import INTERFACE, Entry
from .swap.forwards import rebind, restore
from .swap.interface import attention_forward
from .swap.loaders import Loader, Loaders
from .swap.report import Report, Row

__all__ = ["Entry", "Report", "Row", "apply", "explain", "loading", "register", "report_of", "revert"]

ATTENTION = (when.is_bidirectional, when.uses_sdpa, when.heads_fit, when.takes_dtype)
FC1_FC2 = (when.parts_fuse("fc1", "activation_fn", "fc2"), when.takes_dtype)
BLOCK = (when.block_fuses, when.takes_dtype)
LAST_AXIS = (when.normalises_last_axis_only, when.takes_dtype)

# Modelling files of transformers.models, their attention and MLP classes. All these MLPs are called alike.
VISION = (
    ("clip.modeling_clip", "CLIPAttention", "CLIPMLP"),
    ("deit.modeling_deit", "DeiTAttention", "DeiTMLP"),
    ("dinov2.modeling_dinov2", "Dinov2Attention", "Dinov2MLP"),
    (
        "dinov2_with_registers.modeling_dinov2_with_registers",
        "Dinov2WithRegistersAttention",
        "Dinov2WithRegistersMLP",
    ),
    ("siglip.modeling_siglip", "SiglipAttention", "SiglipMLP"),
    ("vit.modeling_vit", "ViTAttention", "ViTMLP"),
    ("vit_mae.modeling_vit_mae", "ViTMAEAttention", "ViTMAEMLP"),
    ("vit_msn.modeling_vit_msn", "ViTMSNAttention", "ViTMSNMLP"),
)
BERT = "transformers.models.bert.modeling_bert"

ENTRIES = (
    Entry("torch.nn:LayerNorm", "layer_norm", "LayerNorm", LAST_AXIS),
    *(Entry(f"transformers.models.{file}:{name}", "attention", INTERFACE, ATTENTION) for file, name, _ in VISION),
    *(Entry(f"transformers.models.{file}:{name}", "mlp", "MLP", FC1_FC2) for file, _, name in VISION),
    Entry(f"{BERT}:BertSelfAttention", "attention", INTERFACE, ATTENTION),
    Entry(f"{BERT}:BertLayer", "mlp", "BertLayer", BLOCK),
)

OPERATIONS = {"attention": "attention", "mlp": "mlp", "norm": "layer_norm"}
# A report speaks of kernels; their names are as good as those of operations.
KERNELS = {**OPERATIONS, "layer_norm": "layer_norm"}

_entries: dict[str, Entry] = {entry.replaces: entry for entry in ENTRIES}
_reports: "weakref.WeakKeyDictionary[nn.Module, Report]" = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def apply(model: nn.Module, only: Optional[Iterable[str]] = None) -> Report:
    """Swap the kernels into `model`, and say what became of each layer. A second call finds everything done.

    only  operations to swap, of "attention", "mlp", "norm" (or "layer_norm", as the report has it); by default all
    A layer that cannot be swapped exactly is left alone, with the reason. A copy.deepcopy of the model stays swapped,
    and can be reverted; a pickle (torch.save of the model) opens as the original model: apply again. ImportError where
    the `kernels` package is missing, TypeError for something that is no nn.Module, ValueError for an unknown operation.
    """
    with _lock:
        found = candidates(modules_of(model), _entries.values(), kernels_of(only))
        refused = swap([candidate for candidate in found if not candidate.reason])
        rows = [candidate.row(candidate.reason or refused.get(candidate.path, SWAPPED)) for candidate in found]
        _reports[model] = report = Report(title(rows, SWAPPED), tuple(rows))
        return report


def explain(model: nn.Module, only: Optional[Iterable[str]] = None) -> Report:
    """What `apply` would do, layer by layer; changes nothing."""
    with _lock:
        found = candidates(modules_of(model), _entries.values(), kernels_of(only))
    rows = [candidate.row(candidate.reason or CAN_BE_SWAPPED) for candidate in found]
    return Report(title(rows, "have a kernel"), tuple(rows))


def revert(model: nn.Module) -> Report:
    """Give every layer of `model` back what it had before the swap, and say which layers that were."""
    with _lock:
        restored = [(path, type(module).__name__) for path, module in modules_of(model) if put_back(module)]
        rows = [Row(path, layer_class, None, "restored") for path, layer_class in restored]
        _reports.pop(model, None)
    return Report(f"{len(rows)} layers restored" if rows else "nothing was swapped in this model", tuple(rows))


def report_of(model: nn.Module) -> Optional[Report]:
    """The report of the last `apply` to this model, also when `loading()` made it; None if nothing is swapped in it.

    A copy, or a part of a swapped model, was never given to `apply`: the report then says what is swapped in it now.
    """
    with _lock:
        modules = modules_of(model)
        if model in _reports or not any(is_swapped(module) for _, module in modules):
            return _reports.get(model)
        found = candidates(modules, _entries.values(), kernels_of(None))
    rows = [candidate.row(candidate.reason or NOT_SWAPPED) for candidate in found]
    return Report(title(rows, SWAPPED), tuple(rows))


def register(entry: Entry) -> None:
    """Add a row, or replace the one for the same class. Models that are swapped already stay as they are."""
    if not isinstance(entry, Entry):
        raise TypeError(f"entry: got {type(entry).__name__}; allowed: a registry.Entry")
    with _lock:
        _entries[entry.replaces] = entry


@contextmanager
def loading(only: Optional[Iterable[str]] = None) -> Iterator[None]:
    """Inside, from_pretrained, timm.create_model and Diffusers pipelines return swapped models; see `report_of(model)`.

    Concerns the current thread (or task) only: another one that loads a model meanwhile gets it untouched.
    """
    wanted = kernels_of(only)

    def receive(result: Any) -> None:
        for model in models_in(result):
            apply(model, wanted)

    with _loaders.handing_to(receive):
        yield


def kernels_of(only: Optional[Iterable[str]]) -> frozenset[str]:
    """Names of kernels from names of operations or kernels."""
    remedy = f"allowed: {', '.join(OPERATIONS)} (or layer_norm); leave it out for all of them"
    if not (only is None or isinstance(only, Iterable)):
        raise TypeError(f"only: got {only!r}; {remedy}")
    names = list(OPERATIONS) if only is None else [only] if isinstance(only, str) else list(only)
    if not names:
        raise ValueError(f"only: got {only!r}, which names nothing; {remedy}")
    for name in names:
        if not (isinstance(name, str) and name in KERNELS):
            raise ValueError(f"only: got {name!r}; {remedy}")
    return frozenset(KERNELS[name] for name in names)


def modules_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model: got {type(model).__name__}; allowed: a torch.nn.Module; of a pipeline pass a component"
        )
    return list(model.named_modules())


def title(rows: list[Row], what: str) -> str:
    if not rows:
        return "nothing to swap: no layer of this model is, or resembles, one that a kernel replaces"
    return f"{sum(row.kernel is not None for row in rows)} of {len(rows)} layers {what}"


def swap(chosen: list[Candidate]) -> dict[str, str]:
    """Swap the chosen layers; returns by path why a layer could not be. After an exception nothing is swapped."""
    groups: dict[Entry, list[Candidate]] = {}
    for candidate in chosen:
        if candidate.entry is not None:
            groups.setdefault(candidate.entry, []).append(candidate)
    refused: dict[str, str] = {}
    with ExitStack() as undo:
        for candidate in chosen:
            undo.callback(put_back, candidate.module)
        for entry, group in groups.items():
            refusal = put_in(entry, [candidate.module for candidate in group])
            if refusal:
                refused.update({candidate.path: refusal for candidate in group})
        undo.pop_all()
    return refused


def put_in(entry: Entry, modules: list[nn.Module]) -> str:
    """Swap these modules, all of the entry's class; says why not, or nothing."""
    if entry.layer == INTERFACE:
        return view_configs(modules)
    return rebind(kernels_library(), modules, entry.layer_class, f"{NAMESPACE}.{entry.replaces}")


def put_back(module: nn.Module) -> bool:
    """Undo the swap of this one module; whether there was anything to undo."""
    view = vars(module).get("config")
    if isinstance(view, ConfigView):
        vars(module)["config"] = view.original
    return restore(module) or isinstance(view, ConfigView)


def view_configs(modules: list[nn.Module]) -> str:
    """Give these attention modules a view of their config that names our function; says why not, or nothing."""
    refusal = register_interface()
    if not refusal:
        for module in modules:
            vars(module)["config"] = view_of(module.config)
    return refusal


@functools.cache
def register_interface() -> str:
    """Make our function known to Transformers, with the masks that its own sdpa gets; or say why that cannot be."""
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    except ImportError as error:
        return f"this version of Transformers has no attention interface ({error}); install 5.18 or newer"
    AttentionInterface.register(IMPLEMENTATION, attention_forward(original_attention()))
    AttentionMaskInterface.register(IMPLEMENTATION, ALL_MASK_ATTENTION_FUNCTIONS[REPLACED])
    return ""


@functools.cache
def original_attention() -> Any:
    """Transformers' own function for what our kernel does not compute."""
    from transformers import AttentionInterface

    return AttentionInterface()[REPLACED]


def kernels_library() -> Any:
    try:
        import kernels
    except ImportError as error:
        raise ImportError("the swap needs the kernels package; install it with: pip install kernels") from error
    return kernels


def loaders() -> list[Loader]:
    """The loaders of the libraries that are there. A library that is broken is no concern of ours: it is left out."""
    found = []
    with suppress(ImportError):
        from transformers import PreTrainedModel

        found.append(Loader(PreTrainedModel, "from_pretrained"))
    if importlib.util.find_spec("timm"):
        with suppress(ImportError, RuntimeError, AttributeError):
            from timm.models import _factory

            # create_model calls it, under whatever name a program has imported that function.
            found.append(Loader(_factory, "model_entrypoint", indirect=True))
    if importlib.util.find_spec("diffusers"):
        with suppress(ImportError, RuntimeError, AttributeError):
            from diffusers import DiffusionPipeline, ModelMixin

            found += [Loader(DiffusionPipeline, "from_pretrained"), Loader(ModelMixin, "from_pretrained")]
    return found


def models_in(result: Any) -> list[nn.Module]:
    """The models in what a loader returns: a model, a model with information about the loading, or a pipeline."""
    if isinstance(result, tuple):
        result = result[0]
    if isinstance(result, nn.Module):
        return [result]
    parts = getattr(result, "components", None)
    return [part for part in parts.values() if isinstance(part, nn.Module)] if isinstance(parts, dict) else []


_loaders = Loaders(loaders)
