"""What of a family can be probed here, and what cannot, with the reason."""

from __future__ import annotations

from probe import registry
from probe.checkpoints import factory, real
from probe.checkpoints.published import part, published, stem
from probe.checkpoints.target import Target

GATED = ("meta-llama/", "google/gemma-2", "google/gemma-3", "google/gemma-7b", "google/codegemma", "google/paligemma")
"""Repositories that hand out files only to accounts that accepted their terms."""


def targets(family: str) -> list[Target]:
    """Everything of a family that can be probed on this machine without the Hub.

    The tiny twins, then the builds from published configs, then the real weights that are installed; a checkpoint
    whose real weights are installed is not built from its config. Raises: ProbeError for an unknown family.
    """
    about = registry.get(family)
    built = about.declares_twins or family not in factory.unbuildable()
    twins = [Target(family, name, "tiny") for name in about.twins if built]
    weights = [Target(family, hub_id, "weights") for hub_id in about.checkpoints if real.installed(hub_id)]
    configs = [
        Target(family, hub_id, "config")
        for hub_id in about.checkpoints
        if _is_built(about, stem(hub_id)) and not real.installed(hub_id)
    ]
    return [*twins, *configs, *weights]


def missing(family: str) -> list[tuple[str, str]]:
    """The listed checkpoints that cannot be probed here: (Hub id, reason), in the selector's order."""
    present = {target.id for target in targets(family)}
    return [(hub_id, _reason(family, hub_id)) for hub_id in registry.get(family).checkpoints if hub_id not in present]


def _is_built(about: registry.Family, name: str | None) -> bool:
    """Whether there is a published config of that file name, and of that family."""
    return name is not None and (about.declares_twins or part(name, about.root, about.name) is not None)


def _reason(family: str, hub_id: str) -> str:
    if name := stem(hub_id):
        other = published(name).config.get("model_type")
        return f"Its published config is of model_type {other!r}, which loads another class than {family}."
    if hub_id.startswith(GATED):
        return (
            "No published config is at hand, and the Hub's repository opens only to accounts that accepted its terms."
        )
    return "No published config is at hand, and the weights are not installed; with the Hub, probe it by its id."
