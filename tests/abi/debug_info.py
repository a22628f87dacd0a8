# SPDX-License-Identifier: Apache-2.0
"""Struct layouts out of a library's own debug information (DWARF, by pyelftools).

A layout is plain data, fit for JSON and for comparing: each member by its dotted name, with offset and size in bytes
and a *kind* that says all the calling convention cares about (``ptr``, ``int32``, ``float64[7][3]``); pointers to
functions carry the kinds of their arguments too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

Layout = dict[str, Any]

FLOAT, BOOLEAN = 0x04, 0x02  # DW_ATE_*
TRANSPARENT = {"DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type"}


class DebugInfo:
    """The debug information of one library or object file."""

    def __init__(self, path: Path) -> None:
        self._handle = path.open("rb")
        self.elf = ELFFile(self._handle)
        self._dwarf = self.elf.get_dwarf_info()

    def __enter__(self) -> DebugInfo:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._handle.close()

    def build_id(self) -> str:
        """The GNU build id in hex; empty if the linker left none."""
        section = self.elf.get_section_by_name(".note.gnu.build-id")
        notes = [] if section is None else list(section.iter_notes())
        return str(notes[0]["n_desc"]) if notes else ""

    def strings(self, prefixes: Iterable[bytes]) -> set[str]:
        """Every NUL-terminated string of the read-only data that starts with one of ``prefixes``."""
        data: bytes = self.elf.get_section_by_name(".rodata").data()
        words = (word for prefix in prefixes for word in _words(data, prefix))
        return {word.decode() for word in words}

    def layouts(self, names: Iterable[str], sources: tuple[str, ...]) -> dict[str, Layout]:
        """The structs called ``names`` (tags or typedefs), looked for in the units compiled from ``sources``.

        The first that is complete counts; what is in none of the units is left out.
        """
        wanted, found = set(names), {}
        for unit in self._dwarf.iter_CUs():
            file = _name(unit.get_top_DIE())
            if not wanted or not file.endswith(sources):
                continue
            for die in unit.get_top_DIE().iter_children():
                name = _name(die)
                struct = _struct_of(die) if name in wanted else None
                if struct is not None:
                    found[name] = layout(struct)
                    wanted.discard(name)
        return found


def layout(struct: DIE) -> Layout:
    """``{"size": ..., "members": {dotted name: {"at": ..., "size": ..., "kind": ...}}}`` of a struct."""
    return {"size": struct.attributes["DW_AT_byte_size"].value, "members": dict(_members(struct, "", 0))}


def _members(struct: DIE, prefix: str, base: int) -> Iterator[tuple[str, Layout]]:
    """Members in order, those of nested structs and unions behind a dot; nameless ones add no word of their own."""
    for child in struct.iter_children():
        if child.tag != "DW_TAG_member":
            continue
        at = base + child.attributes["DW_AT_data_member_location"].value if _has_place(child) else base
        kind = _resolve(_type_of(child))
        name = f"{prefix}{_name(child)}"
        if kind is not None and kind.tag in ("DW_TAG_structure_type", "DW_TAG_union_type"):
            yield from _members(kind, f"{name}." if _name(child) else prefix, at)
        else:
            member: Layout = {"at": at, "size": _size(kind), "kind": _kind(kind)}
            arguments = _arguments(kind)
            yield name, member if arguments is None else {**member, "arguments": arguments}


def _has_place(die: DIE) -> bool:
    return "DW_AT_data_member_location" in die.attributes


def _name(die: DIE) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return "" if attribute is None else str(attribute.value.decode(errors="replace"))


def _type_of(die: DIE) -> DIE | None:
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def _resolve(die: DIE | None) -> DIE | None:
    """Through typedefs and qualifiers; ``None`` is void."""
    while die is not None and die.tag in TRANSPARENT:
        die = _type_of(die)
    return die


def _struct_of(die: DIE) -> DIE | None:
    """The complete struct a tag or typedef names."""
    if die.tag not in ("DW_TAG_structure_type", "DW_TAG_typedef"):
        return None
    struct = _resolve(die)
    complete = struct is not None and struct.tag == "DW_TAG_structure_type" and "DW_AT_byte_size" in struct.attributes
    return struct if complete else None


def _dimensions(array: DIE) -> list[int]:
    ranges = [child for child in array.iter_children() if child.tag == "DW_TAG_subrange_type"]
    return [_count(range_) for range_ in ranges]


def _count(range_: DIE) -> int:
    for attribute, extra in (("DW_AT_count", 0), ("DW_AT_upper_bound", 1)):
        if attribute in range_.attributes:
            return int(range_.attributes[attribute].value) + extra
    return 0


def _size(die: DIE | None) -> int:
    if die is None:
        return 0
    if die.tag == "DW_TAG_array_type":
        size = _size(_resolve(_type_of(die)))
        for count in _dimensions(die):
            size *= count
        return size
    return int(die.attributes["DW_AT_byte_size"].value) if "DW_AT_byte_size" in die.attributes else 8


def _kind(die: DIE | None) -> str:
    """What the calling convention cares about; a signed and an unsigned integer, or an enum, are alike."""
    if die is None:
        return "void"
    if die.tag in ("DW_TAG_pointer_type", "DW_TAG_reference_type"):
        return "ptr"
    if die.tag == "DW_TAG_array_type":
        return _kind(_resolve(_type_of(die))) + "".join(f"[{count}]" for count in _dimensions(die))
    if die.tag == "DW_TAG_base_type":
        encoding = die.attributes["DW_AT_encoding"].value
        word = "float" if encoding == FLOAT else "bool" if encoding == BOOLEAN else "int"
        return f"{word}{8 * _size(die)}"
    return f"int{8 * _size(die)}" if die.tag == "DW_TAG_enumeration_type" else f"struct{_size(die)}"


def _arguments(die: DIE | None) -> list[str] | None:
    """Kinds of the arguments, if this is a pointer to a function."""
    function = _resolve(_type_of(die)) if die is not None and die.tag == "DW_TAG_pointer_type" else None
    if function is None or function.tag != "DW_TAG_subroutine_type":
        return None
    return [
        _kind(_resolve(_type_of(child))) for child in function.iter_children() if child.tag == "DW_TAG_formal_parameter"
    ]


def _words(data: bytes, prefix: bytes) -> Iterator[bytes]:
    at = data.find(prefix)
    while at >= 0:
        yield data[at : data.index(b"\0", at)]
        at = data.find(prefix, at + 1)
