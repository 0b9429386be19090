"""Tokenizers: a model folder's own, or a small one trained here on text made in code."""

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.model.catalogue import SHAPES, shape_folder
from engine.model.shape import ModelLoadError, read_shape

BEGIN, END = "<|begin|>", "<|end|>"
_SENTENCES = 4000
_ONSETS = ["b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pr", "qu", "r"]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "ou"]
_CODAS = ["", "b", "ck", "d", "g", "l", "m", "n", "nd", "ng", "nt", "p", "r", "rd", "s", "st", "t", "x"]
_ENDINGS = ["", "", "", "s", "ed", "ing", "er", "ly", "tion", "able"]
_COMMON = """
    the of and to a in is it you that he was for on are with as his they be at one have this from or had by but what
    all were we when your can said there use an each which she do how their if will up other about out many then them
    these so some her would make like him into time has look two more write go see number no way could people my than
    first water been call who its now find long down day did get come made may part model token request server prefill
"""


def load_tokenizer(name_or_folder: str) -> Tokenizer:
    """The folder's `tokenizer.json`, or for a model name the demo tokenizer of at most its vocabulary.

    Raises ModelLoadError when the folder has none or it cannot be read.
    """
    folder = shape_folder(name_or_folder)
    if folder.parent == SHAPES:
        return train_demo_tokenizer(min(read_shape(folder).vocab_size, 4096))
    return _read(folder / "tokenizer.json")


def _read(file: Path) -> Tokenizer:
    if not file.is_file():
        raise ModelLoadError(f"{file}: the model's tokenizer is missing")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:
        # The library raises nothing more precise.
        raise ModelLoadError(f"{file}: cannot read the tokenizer ({error})") from error


def train_demo_tokenizer(vocab_size: int) -> Tokenizer:
    """A byte-level BPE of at most `vocab_size` tokens; the same one every time. Ids 0 and 1 begin and end a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(demo_text(), trainer)
    return tokenizer


def demo_text() -> Iterator[str]:
    """Sentences of common English words, made-up words and numbers; the same ones every time."""
    draw = random.Random(20260218)
    common = _COMMON.split()
    made_up = [_word(draw) for _ in range(1500)]
    for _ in range(_SENTENCES):
        words = [
            draw.choice(common) if draw.random() < 0.55 else draw.choice(made_up) for _ in range(draw.randint(5, 18))
        ]
        if draw.random() < 0.2:
            words.insert(draw.randrange(len(words)), str(draw.randint(0, 9999)))
        yield " ".join(words).capitalize() + draw.choice((".", ".", ".", "?", ",", ":", "\n"))


def _word(draw: random.Random) -> str:
    syllables = (draw.choice(_ONSETS) + draw.choice(_VOWELS) + draw.choice(_CODAS) for _ in range(draw.randint(1, 3)))
    return "".join(syllables) + draw.choice(_ENDINGS)
