"""The words about a tower, composed from its numbers."""

from __future__ import annotations

from ..schema import PathNode
from .listing import listed
from .tower_numbers import After, Numbers
from .tower_pooling import Average


def path(numbers: Numbers) -> list[PathNode]:
    """The image's way, station by station; shapes where something ran."""
    shapes = {name: list(shape) for name, shape in numbers.shapes.items()}
    nodes = [PathNode(label="image", note=numbers.pixels, shape=shapes.get("pixels"))]
    nodes.append(PathNode(label="patch_embed", value="patch_embeddings", shape=shapes.get("patch_embeddings")))
    if numbers.pre_norm:
        what = "norms patches plus positions" if numbers.added else "norms the patches"
        nodes.append(PathNode(label=numbers.pre_norm, note=what, shape=shapes.get("layer_input")))
    last = "layer_output" if numbers.norm_is_output else "tower_output"
    nodes.append(PathNode(label="layers", value=last, repeat=numbers.blocks, shape=shapes.get("layer_input")))
    previous = "tower_output"
    for step in numbers.after:
        shape = list(step.shape) or None
        if step.norm and numbers.norm_is_output:
            nodes.append(PathNode(label="norm", value="tower_output", shape=shapes.get("tower_output")))
            continue
        note = f"input: {previous}" if step.path == "projector" else None
        nodes.append(PathNode(label=step.path, note=note or _counts(step), shape=shape))
        previous = f"what {step.path} returns"
    nodes.append(
        PathNode(
            label="image_features", value="image_features", note="at the scatter", shape=shapes.get("image_features")
        )
    )
    nodes.append(PathNode(label="layers[0].input", value="layer_input", note="at image_token_mask"))
    return nodes


def _counts(step: After) -> str | None:
    return (
        f"{step.rows_in} rows to {step.rows_out}"
        if step.rows_in and step.rows_out and step.rows_in != step.rows_out
        else None
    )


def rows(numbers: Numbers) -> str:
    """What a row of the tower is and how long."""
    said = []
    if numbers.tiles:
        said.append(_tiles(numbers))
    elif numbers.varies and numbers.images[0].unread:
        said += _padding(numbers)
    elif not numbers.varies:
        said.append("One row an image, whatever its size.")
    if not numbers.varies and numbers.grid and numbers.patches:
        patches = f"{numbers.patches} patches ({numbers.grid[0]} × {numbers.grid[1]})"
        if numbers.class_rows:
            last = numbers.class_rows[0] < 0
            order = f"{patches} and then the class row" if last else f"the class row and then {patches}"
            said.append(f"A row is {order}: {numbers.length} entries.")
        else:
            said.append(f"A row is {patches}.")
    return " ".join(said) + ("" if numbers.tiles else _seen(numbers))


def _tiles(numbers: Numbers) -> str:
    picture = numbers.images[0]
    whole = 0 if numbers.global_row == "none" else 1
    end = f" and, {numbers.global_row}, the whole image made small" if whole else ""
    one = next((image.size for image in numbers.images if image.rows == 1), None)
    small = f", a {one} one a single row" if one else ""
    where = f"on the run of {numbers.seen_on} " if numbers.seen_on else ""
    return f"One row a tile: {where}a {picture.size} image became {picture.rows - whole} tiles{end}{small}."


def _padding(numbers: Numbers) -> list[str]:
    said = [f"One row an image: its patches, on a grid that follows the image's shape, then padding{_up_to(numbers)}."]
    picture = numbers.images[0]
    if numbers.padded is not None and picture.grid:
        others = listed([f"{image.grid[0]} × {image.grid[1]}" for image in numbers.images[1:] if image.grid])
        patches = f"{picture.grid[0]} × {picture.grid[1]} = {picture.grid[0] * picture.grid[1]} patches"
        said.append(f"The {picture.size} image is {patches} and {numbers.padded} padded entries; others gave {others}.")
    if numbers.position_input:
        name, value = numbers.position_input
        said.append(f"{name} gives each patch its column and row; padded entries have ({value}, {value}).")
    return said


def _up_to(numbers: Numbers) -> str:
    if numbers.length is None or numbers.budget is None:
        return "" if numbers.length is None else f" up to {numbers.length} entries"
    return f" up to what the processor allows ({numbers.length} entries for the config's {numbers.budget})"


def positions(numbers: Numbers) -> str:
    """Which places enter where."""
    found = numbers.added
    before = " before the class row joins" if numbers.class_rows else ""
    said = [f"patch_embeddings are {numbers.patch_embed}'s output{before}."]
    if found is None:
        said.append("Nothing is added to them before the blocks.")
    else:
        said.append(_added(numbers))
    turn = numbers.turning[0] if numbers.turning else None
    if turn is None:
        said.append("Whether queries and keys turn with a patch's place was not measured.")
    elif not turn.columns and not turn.rows:
        said.append("Nothing in the attention turns with a patch's place.")
    else:
        still = " The class row does not turn." if turn.class_row_turns is False else ""
        said.append(
            f"Every attention turns queries and keys: of a head's {turn.head_dim} dimensions "
            f"{_span(turn.columns)} by the patch's column, {_span(turn.rows)} by its row{_pairs(turn.pairs)}.{still}"
        )
    return " ".join(said) + _seen(numbers)


def _added(numbers: Numbers) -> str:
    found = numbers.added
    assert found is not None
    shape = f" {list(found.table_shape)}" if found.table_shape else ""
    if found.by == "axes":
        what = f"Each patch gets a vector for its column and one for its row, both from {found.table}{shape}"
        what += ", and a padded entry nothing" if found.zero_on_padding else ""
    elif found.by == "row":
        what = f"Each gets the row of {found.table}{shape} at its place"
        if found.class_parameter:
            what += f", and so does the class row, {found.class_parameter} before that"
    else:
        what = "Each gets a vector that depends on its place alone"
    return what + (f"; {numbers.pre_norm} norms the sum." if numbers.pre_norm else ".")


def masking(numbers: Numbers) -> str:
    """Who attends to whom."""
    own, others = numbers.reached
    where = f"on the run of {numbers.seen_on} " if numbers.seen_on else ""
    if not numbers.unmasked:
        return f"Patches do not all attend to one another: {where}a change of one reached {own} entries of its row."
    whom = "entries of its row, the class row among them" if numbers.class_rows else "patches of its image"
    said = [f"None among patches: {where}a change of one reached all {own} {whom}, those before it too."]
    hidden = numbers.images[0].unread
    if hidden:
        said.append(
            f"The {hidden} padded entries were masked as keys: noise on them moved no patch, "
            "though they pass every block themselves."
        )
    if numbers.other_rows and not others:
        kind = "tiles do not see one another" if numbers.tiles else "images do not see one another"
        said.append(f"It reached none of the {numbers.other_rows} other rows: {kind}.")
    elif others:
        said.append(f"It reached {others} entries of other rows.")
    return " ".join(said)


def final_norm(numbers: Numbers) -> str:
    """What follows the blocks."""
    said = []
    norm = next((step for step in numbers.after if step.norm), None)
    if norm is not None and numbers.norm_is_output:
        kind = "a LayerNorm" if norm.subtracts_mean else "an RMSNorm"
        over = "every row, the class row included" if numbers.class_rows else "every row"
        said.append(f"{norm.path} is vision.norm, {kind} over {over}; vision.tower_output is its output.")
    else:
        padded = ", padded entries included" if numbers.images[0].unread else ""
        said.append(f"None: vision.tower_output is the last block's stream{padded}.")
    rest = [step for step in numbers.after if not step.norm]
    if any(step.drops_class_row for step in rest):
        said.append(f"The class row is dropped before {next(step.path for step in rest if step.drops_class_row)}.")
    if rest:
        said.append(f"Then, outside the blocks, {' and '.join(step.path for step in rest)}: {_made(numbers)}.")
    if numbers.average is not None:
        said.append(_averaged(numbers.average, numbers))
    return " ".join(said) + _seen(numbers)


def _made(numbers: Numbers) -> str:
    if numbers.ratio <= 1:
        return "a token a patch"
    if numbers.tokens and numbers.patches and not numbers.varies:
        return f"{numbers.patches} patches of a row become {numbers.tokens} image tokens"
    return f"{numbers.ratio:g} patches become one image token"


def _averaged(found: Average, numbers: Numbers) -> str:
    root = abs(found.factor - numbers.config.hidden_size**0.5) < 1e-3 * found.factor
    times = f"{found.factor:.4g}" + (", the root of vision_hidden_size" if root else "")
    said = f"{found.module} averages {found.side} × {found.side} patches, times {times}"
    if numbers.shift is not None:
        by = " and ".join(name for name in (numbers.shift.shift, numbers.shift.scale) if name) or "numbers of its own"
        said += f"; after it each dimension is shifted and scaled by {by}"
    return said + "."


def _seen(numbers: Numbers) -> str:
    return f" Seen on the run of {numbers.seen_on}; the numbers are this config's." if numbers.seen_on else ""


def _pairs(pairs: str | None) -> str:
    return {"adjacent": ", in adjacent pairs", "halves": ", each part's first half paired with its second"}.get(
        pairs or "", ""
    )


def _span(dimensions: tuple[int, ...]) -> str:
    if len(dimensions) > 1 and dimensions == tuple(range(dimensions[0], dimensions[-1] + 1)):
        return f"{dimensions[0]} to {dimensions[-1]}"
    return ", ".join(map(str, dimensions)) or "none"
