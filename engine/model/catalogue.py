"""Model shapes by name or by folder."""

from pathlib import Path

from engine.model.shape import ModelLoadError, ModelShape, read_shape

SHAPES = Path(__file__).parent / "shapes"


def model_names() -> list[str]:
    """Names that `load_shape` knows."""
    return sorted(folder.name for folder in SHAPES.iterdir() if folder.is_dir())


def shape_folder(name_or_folder: str) -> Path:
    """Where the model's config.json is. Raises ModelLoadError for an unknown name."""
    if name_or_folder in model_names():
        return SHAPES / name_or_folder
    folder = Path(name_or_folder)
    if not folder.is_dir():
        raise ModelLoadError(f"model {name_or_folder} is neither a folder nor one of {', '.join(model_names())}")
    return folder


def load_shape(name_or_folder: str) -> ModelShape:
    """The shape of a model. Raises ModelLoadError with one sentence for anything the user can mend."""
    return read_shape(shape_folder(name_or_folder))
