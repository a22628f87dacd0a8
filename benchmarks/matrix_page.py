# SPDX-License-Identifier: Apache-2.0
"""The page and the pictures of the matrix, from its raw results.

    python -m benchmarks.matrix_page benchmarks/results/matrix_h200x8_202611.json [PART.json ...]

With parts (files written by ``benchmarks.matrix --out``), they become the named file first: later parts win, row by
row. The page is written beside it (``.md``), pictures into ``figures``. ``--table`` prints the table of targets alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.matrix.page_values import Data, headline, page
from benchmarks.matrix.results_file import FORMAT, written


def merge(parts: list[Path]) -> Data:
    """One file of several: a row that is complete is not replaced by one that is not. Raises SystemExit where one of
    them is a rehearsal and another is not."""
    whole: Data = {"format": FORMAT, "sessions": [], "rows": {}, "superseded": []}
    for part in parts:
        data = json.loads(part.read_text())
        first = len(whole["sessions"])
        whole["sessions"] += data["sessions"]
        whole["superseded"] += data.get("superseded", [])
        if len({bool(session["rehearsed"]) for session in whole["sessions"]}) > 1:
            raise SystemExit(f"{part}: a rehearsal and measurements are not put into one file")
        for name, entry in data["rows"].items():
            if entry.get("complete") or not whole["rows"].get(name, {}).get("complete"):
                whole["rows"][name] = {**entry, "session": entry["session"] + first}
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("parts", type=Path, nargs="*")
    parser.add_argument("--table", action="store_true", help="print the table of targets and write nothing")
    arguments = parser.parse_args()
    if arguments.parts:
        arguments.results.write_text(written(merge(arguments.parts)))
    data = json.loads(arguments.results.read_text())
    if arguments.table:
        print(headline(data), end="")
        return
    from benchmarks.matrix.plots import draw  # matplotlib, which --table does without

    folder = arguments.results.parent
    pictures = draw(data, folder / "figures", arguments.results.stem)
    arguments.results.with_suffix(".md").write_text(page(data, [f"figures/{name}" for name in pictures]))


if __name__ == "__main__":
    main()
