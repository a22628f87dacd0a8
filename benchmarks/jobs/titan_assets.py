# SPDX-License-Identifier: Apache-2.0
"""What torchtitan reads besides its own code and no package ships: a tokenizer and text. Ours are of bytes, and random.

python titan_assets.py FOLDER     # makes FOLDER/tokenizer and FOLDER/text
"""

from __future__ import annotations

import json
import random
import string
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

BEGIN, END = "<s>", "</s>"
DOCUMENTS, LETTERS = 512, 32768  # 16 MB: more than a run reads, though it begins anew where the text ends


def make_tokenizer(folder: Path) -> None:
    """One token a byte: whatever vocabulary the model has, it is larger."""
    words = [BEGIN, END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BEGIN, END])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BEGIN, "eos_token": END}))


def make_text(folder: Path) -> None:
    """Documents as C4 has them, one JSON object a line."""
    draw = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"text": "".join(draw.choices(string.ascii_lowercase, k=LETTERS))}) for _ in range(DOCUMENTS))
    (folder / "text.json").write_text("\n".join(lines) + "\n")


def main() -> None:
    folder = Path(sys.argv[1])
    make_tokenizer(folder / "tokenizer")
    make_text(folder / "text")


if __name__ == "__main__":
    main()
