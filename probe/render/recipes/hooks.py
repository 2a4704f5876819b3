"""Snippets by hooks of plain PyTorch.

A hook gets what a module takes and returns. It is removed by its first call, since some blocks run several times.
Three kinds of operation inside a forward are reached besides: what goes into and comes out of transformers' shared
attention interface, by standing in for its look-up; and what a function of ``torch`` or ``torch.nn.functional`` takes
or gives, by standing in for it while the module runs, where it is the first such call of the forward.
"""

from __future__ import annotations

import re

from probe.render.recipes.place import Place

INTERFACE = re.compile(r"source\.attention_interface_1\.(inputs\[0\]\[(\d)\]|output\[(\d)\])$")
FUNCTION = re.compile(r"source\.(?:attention_interface_1\.source\.)?(F|nn_functional|torch)_([a-z0-9_]+?)_0\.(.+)$")
OWNER = {"F": "torch.nn.functional", "nn_functional": "torch.nn.functional", "torch": "torch"}
KNOWN = {
    "torch": "bmm einsum matmul relu sigmoid softmax tanh topk".split(),
    "torch.nn.functional": "dropout gelu linear relu sigmoid silu softmax softplus".split(),
}
"""PyTorch's own; an operation may be named alike and be a function of the model's, such as ``torch_causal_conv1d``."""
INDEX = re.compile(r"(input|inputs|output)((?:\[[^\]]+\])*)$")


def read(at: Place) -> str | None:
    """None where no hook reaches the value or no expression makes it."""
    if at.view is None:
        return None
    if at.side == "op":
        return _interface(at) or _function(at)
    if at.side == "in":
        signature, register, got = "(module, args, kwargs)", "register_forward_pre_hook", _taken(at.location)
    else:
        signature, register, got = "(module, args, kwargs, output)", "register_forward_hook", at.location
        if at.tupled:
            got = "(output[0] if isinstance(output, (tuple, list)) else output)"
    return "\n".join(
        [
            *at.counts,
            f"def keep{signature}:",
            f"    keep.value = {at.copied(got)}",
            "    hook.remove()",
            "",
            f"hook = {_module(at)}.{register}(keep, with_kwargs=True)",
            "with torch.no_grad():",
            "    model(**inputs)",
            "value = keep.value",
        ]
    )


def edit(at: Place) -> str | None:
    """None where the value is no view of what a module returns."""
    if at.view is None or at.made or at.side != "out":
        return None
    return "\n".join(
        [
            *at.counts,
            "def add(module, args, output):",
            f"    {at.expression(at.location)}{at.change}",
            "    hook.remove()",
            "",
            f"hook = {_module(at)}.register_forward_hook(add)",
            "with torch.no_grad():",
            "    logits = model(**inputs).logits",
        ]
    )


def _module(at: Place) -> str:
    return f'model.get_submodule("{at.path}")' if at.path else "model"


def _taken(location: str) -> str:
    """What a location says of a module's input, of ``args`` and ``kwargs``."""
    if location == "input":
        return "[*args, *kwargs.values()][0]"
    index = re.findall(r"\[([^\]]+)\]", location)
    if not index:
        return "kwargs"
    return ("args" if index[0] == "0" else "kwargs") + "".join(f"[{key}]" for key in index[1:])


def _interface(at: Place) -> str | None:
    """The arguments and results of the attention interface."""
    found = INTERFACE.match(at.location)
    if found is None and at.name != "attention_probabilities":
        return None
    if found is None and not at.location.startswith("source.attention_interface_1.source."):
        return None
    got = "result[1]" if found is None else f"args[{int(found[2]) - 1}]" if found[2] else f"result[{found[3]}]"
    return "\n".join(
        [
            "from transformers import AttentionInterface",
            "",
            f"attention, get, calls = {_module(at)}, AttentionInterface.get_interface, []",
            *at.counts,
            "def interface(self, name, default):",
            "    def call(module, *args, **kwargs):",
            "        result = get(self, name, default)(module, *args, **kwargs)",
            "        if module is attention:",
            f"            calls.append({at.copied(got)})",
            "        return result",
            "    return call",
            "",
            "AttentionInterface.get_interface = interface",
            "with torch.no_grad():",
            "    model(**inputs)",
            "AttentionInterface.get_interface = get",
            "value = calls[0]",
        ]
    )


def _function(at: Place) -> str | None:
    """What a function of PyTorch takes or gives while the module runs."""
    found = FUNCTION.match(at.location)
    side = INDEX.match(found[3]) if found else None
    if found is None or side is None:
        return None
    owner, name = OWNER[found[1]], found[2]
    if name not in KNOWN[owner]:
        return None
    index = re.findall(r"\[([^\]]+)\]", side[2])
    got = "args[0]" if side[1] == "input" else "result" if side[1] == "output" else "args"
    got += "".join(f"[{key}]" for key in (index[1:] if side[1] == "inputs" else index))
    return "\n".join(
        [
            f"module, original, calls = {_module(at)}, {owner}.{name}, []",
            *at.counts,
            f"def {name}(*args, **kwargs):",
            "    result = original(*args, **kwargs)",
            f"    calls.append({at.copied(got)})",
            "    return result",
            "",
            f'before = module.register_forward_pre_hook(lambda *_: setattr({owner}, "{name}", {name}))',
            f'after = module.register_forward_hook(lambda *_: setattr({owner}, "{name}", original))',
            "with torch.no_grad():",
            "    model(**inputs)",
            "before.remove(), after.remove()",
            "value = calls[0]",
        ]
    )
