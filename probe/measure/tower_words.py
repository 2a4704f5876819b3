"""The words about a tower, composed from its numbers."""

from __future__ import annotations

from ..schema import PathNode
from .tower_numbers import After, Numbers


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
    nodes.append(PathNode(label="image_features", value="image_features", note="at the scatter", shape=shapes.get("image_features")))
    nodes.append(PathNode(label="layers[0].input", value="layer_input", note="at image_token_mask"))
    return nodes


def _counts(step: After) -> str | None:
    return f"{step.rows_in} rows to {step.rows_out}" if step.rows_in and step.rows_out and step.rows_in != step.rows_out else None


def rows(numbers: Numbers) -> str:
    """What a row of the tower is and how long."""
    size, grid, count, unread, _ = numbers.images[0]
    said = []
    if numbers.tiles:
        whole = 0 if numbers.global_row == "none" else 1
        end = f" and, {numbers.global_row}, the whole image made small" if whole else ""
        one = next((image[0] for image in numbers.images if image[2] == 1), None)
        small = f"; a {one} one stayed a single row" if one else ""
        said.append(f"One row a tile: a {size} image became {count - whole} tiles{end}{small}{_where(numbers)}.")
    if numbers.varies and (numbers.padded or unread):
        said.append(f"One row an image: its patches, on a grid that follows the image's shape, then padding{_up_to(numbers)}.")
        if numbers.padded is not None and grid and numbers.length:
            others = _listed([f"{g[0]} × {g[1]}" for _, g, *_ in numbers.images[1:] if g])
            said.append(
                f"The {size} image is {grid[0]} × {grid[1]} = {grid[0] * grid[1]} patches and {numbers.padded} padded entries; "
                f"other images gave grids of {others}."
            )
        if numbers.position_input:
            name, value = numbers.position_input
            said.append(f"{name} gives each patch its column and row; padded entries have ({value}, {value}).")
    elif not numbers.varies and not numbers.tiles:
        said.append(f"One row an image, whatever its size{_where(numbers)}.")
    if not numbers.varies and numbers.grid and numbers.patches:
        patches = f"{numbers.patches} patches ({numbers.grid[0]} × {numbers.grid[1]})"
        if numbers.class_rows:
            order = f"{patches} and then the class row" if numbers.class_rows[0] < 0 else f"the class row and then {patches}"
            said.append(f"A row is {order}: {numbers.length} entries.")
        else:
            said.append(f"A row is {patches}.")
    return " ".join(said)


def _up_to(numbers: Numbers) -> str:
    if numbers.length is None:
        return ""
    return f" up to {numbers.length} entries" + (f" ({numbers.budget}, unless the processor is told otherwise)" if numbers.budget else "")


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
            f"Every attention turns queries and keys: of a head's {turn.head_dim} dimensions {_span(turn.columns)} by the patch's column, "
            f"{_span(turn.rows)} by its row{_pairs(turn.pairs)}.{still}"
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
    if not numbers.unmasked:
        return f"Patches do not all attend to one another: a change of one reached {own} entries of its row." + _seen(numbers)
    what = "entries of its row, the class row among them" if numbers.class_rows else "patches of its image"
    said = [f"None among patches, causal or other: a change of one reached all {own} {what}, earlier ones too{_where(numbers)}."]
    hidden = numbers.images[0][3]
    if hidden:
        said.append(f"The {hidden} padded entries are masked as keys: noise on them moved no patch, while their own rows run through every block.")
    if numbers.other_rows:
        reach = "none" if not others else str(others)
        kind = "tiles do not see one another" if numbers.tiles and not others else "rows are apart" if not others else "rows are not apart"
        said.append(f"It reached {reach} of the {numbers.other_rows} other rows: {kind}.")
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
        padded = ", padded entries included" if numbers.images[0][3] else ""
        said.append(f"None: vision.tower_output is the last block's stream{padded}.")
    rest = [step for step in numbers.after if not step.norm]
    if any(step.drops_class_row for step in rest):
        said.append(f"The class row is dropped before {next(step.path for step in rest if step.drops_class_row)}.")
    if rest:
        chain = " and then ".join(step.path for step in rest)
        said.append(f"What follows, outside the blocks, is {chain}{_made(numbers)}.")
    return " ".join(said) + _seen(numbers)


def _made(numbers: Numbers) -> str:
    if numbers.ratio <= 1:
        return ""
    many = f"{numbers.ratio:g} patches make one image token"
    if numbers.tokens and numbers.grid and not numbers.varies and numbers.patches:
        return f": {many}, {numbers.patches} of a row {numbers.tokens}"
    return f": {many}"


def _seen(numbers: Numbers) -> str:
    return f" (Seen on the run of {numbers.seen_on}; the numbers are this config's.)" if numbers.seen_on else ""


def _where(numbers: Numbers) -> str:
    return f" on the run of {numbers.seen_on}" if numbers.seen_on else ""


def _pairs(pairs: str | None) -> str:
    return {"adjacent": ", in adjacent pairs", "halves": ", each part's first half paired with its second"}.get(pairs or "", "")


def _span(dimensions: tuple[int, ...]) -> str:
    if len(dimensions) > 1 and dimensions == tuple(range(dimensions[0], dimensions[-1] + 1)):
        return f"{dimensions[0]} to {dimensions[-1]}"
    return ", ".join(map(str, dimensions)) or "none"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
