# SPDX-License-Identifier: Apache-2.0
"""The bytes of the shared region: what the C compiler made of the header is what Python reads.

``csrc/protocol/dump_layout.c`` prints every field; each is compared with cffi's view of ``lagom.wire.layout`` and with
the numpy rows of the two records.
"""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lagom import records
from lagom.sim.virtual import abi
from lagom.wire import declarations, layout
from lagom.wire.declarations import digest, write_parsed
from lagom.wire.library import library

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The layout as printed by C."""
    program = tmp_path_factory.mktemp("layout") / "dump_layout"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Icsrc"]
    subprocess.run(["gcc", *flags, "csrc/protocol/dump_layout.c", "-o", str(program)], cwd=ROOT, check=True)
    printed: dict[str, Any] = json.loads(
        subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    )
    return printed


STRUCTS = [
    "lagom_config",
    "lagom_site",
    "lagom_rule",
    "lagom_plan",
    "lagom_header",
    "lagom_process",
    "lagom_communicator",
    "lagom_slot",
    "lagom_call_record",
    "lagom_kernel_span",
    "lagom_kernel_name",
    "lagom_node_rules",
    "lagom_region",
    "lagom_mapping",
]


@pytest.mark.parametrize(
    ("module", "declarations", "parsed"),
    [
        ("lagom.wire.declarations", declarations.DECLARATIONS, "lagom/wire/parsed.py"),
        ("lagom.sim.virtual.abi", abi.DECLARATIONS, "lagom/sim/virtual/parsed_abi.py"),
    ],
)
def test_what_is_loaded_was_parsed_from_the_declarations(module: str, declarations: str, parsed: str) -> None:
    """By their digest: another release of cffi may write the same otherwise."""
    assert f"\n# {digest(declarations)}\n" in (ROOT / parsed).read_text(), f"write it anew: python -m {module}"


def test_what_is_written_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parsed(tmp_path / "parsed_sample.py", "struct sample { int first; char rest[12]; };")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("parsed_sample").ffi.sizeof("struct sample") == 16


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_is_the_same_in_python(dumped: dict[str, Any], name: str) -> None:
    ctype = layout.ffi.typeof(f"struct {name}")
    in_python = {
        field: (info.offset, layout.ffi.sizeof(info.type)) for field, info in (ctype.fields or []) if field is not None
    }
    in_c = {field["name"]: (field["offset"], field["size"]) for field in dumped["structs"][name]["fields"]}
    assert in_python == in_c
    assert layout.ffi.sizeof(ctype) == dumped["structs"][name]["size"]


def test_every_struct_is_compared(dumped: dict[str, Any]) -> None:
    assert sorted(dumped["structs"]) == sorted(STRUCTS)


@pytest.mark.parametrize("name", [name for name in STRUCTS if name != "lagom_mapping"])
def test_there_is_no_hidden_padding(dumped: dict[str, Any], name: str) -> None:
    """Fields follow each other without a gap, so none is missing from the dump and every byte has an owner."""
    end = 0
    for field in dumped["structs"][name]["fields"]:
        assert field["offset"] == end, f"a gap before {field['name']}"
        end += field["size"]
    assert end == dumped["structs"][name]["size"]


@pytest.mark.parametrize(
    ("name", "row"), [("lagom_call_record", layout.CALL_RECORD), ("lagom_kernel_span", layout.KERNEL_SPAN)]
)
def test_numpy_rows_are_the_same(dumped: dict[str, Any], name: str, row: np.dtype[Any]) -> None:
    assert row.fields is not None
    in_numpy = {field: (info[1], info[0].itemsize) for field, info in row.fields.items()}
    in_c = {field["name"]: (field["offset"], field["size"]) for field in dumped["structs"][name]["fields"]}
    assert in_numpy == in_c
    assert row.itemsize == dumped["structs"][name]["size"]


def test_constants_are_the_same(dumped: dict[str, Any]) -> None:
    """Every LAGOM_ constant that Python names, as a module constant or as an enumerator, has C's value."""
    in_c = dumped["constants"]
    modules = {
        f"LAGOM_{name}": value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)
    }
    compared = {name: value for name, value in modules.items() if name in in_c}
    assert len(compared) >= 12
    assert compared == {name: in_c[name] for name in compared}
    enumerators = {name: getattr(library(), name) for name in in_c if hasattr(library(), name)}
    assert len(enumerators) >= 30
    assert enumerators == {name: in_c[name] for name in enumerators}


@pytest.mark.parametrize("enum", [records.Function, records.Algorithm, records.Protocol])
def test_numbering_of_nccl_is_the_same(dumped: dict[str, Any], enum: Any) -> None:
    for member in enum:
        assert dumped["constants"][f"LAGOM_{member.name}"] == member.value


def test_a_region_is_small(dumped: dict[str, Any]) -> None:
    assert dumped["structs"]["lagom_region"]["size"] <= 8 << 20
