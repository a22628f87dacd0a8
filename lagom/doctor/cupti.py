"""Is there a CUPTI for kernel timelines, and does somebody else hold it?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lagom.doctor.finding import Finding, Level

AREA = "cupti"


def examine(environ: Mapping[str, str], path: list[str] | None = None) -> list[Finding]:
    """Where libcupti is, and who is ahead of us."""
    found = [*wheel_libraries(path), *toolkit_libraries(environ)]
    findings = [
        Finding(Level.OK, AREA, f"{found[0]} (first of {len(found)})")
        if found
        else Finding(
            Level.NOTE,
            AREA,
            "no libcupti is found: no kernel timelines, tuning goes by iteration time alone",
            "it comes with torch's CUDA wheels (nvidia-cuda-cupti) and with the CUDA toolkit.",
        )
    ]
    injected = environ.get("CUDA_INJECTION64_PATH", "")
    if injected and "lagom" not in Path(injected).name:
        text = f"CUDA_INJECTION64_PATH={injected}: another tool (nsys?) takes CUPTI first"
        findings.append(
            Finding(Level.NOTE, AREA, text, "lagom yields to it; run without that tool for kernel timelines.")
        )
    return findings


def wheel_libraries(path: list[str] | None = None) -> list[Path]:
    """libcupti of installed wheels."""
    distributions = metadata.distributions() if path is None else metadata.distributions(path=path)
    files = (
        Path(str(file.locate()))
        for distribution in distributions
        if (distribution.metadata["Name"] or "")
        .lower()
        .replace("_", "-")
        .startswith(("nvidia-cuda-cupti", "nvidia-cuda-runtime"))
        for file in distribution.files or ()
        if file.name.startswith("libcupti.so")
    )
    return sorted({file for file in files if file.is_file()})


def toolkit_libraries(environ: Mapping[str, str]) -> list[Path]:
    """libcupti of CUDA toolkits in their usual places."""
    homes = [environ.get("CUDA_HOME", ""), environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    folders = [Path(home, *below) for home in homes if home for below in (("extras", "CUPTI", "lib64"), ("lib64",))]
    return sorted({Path(os.path.realpath(file)) for folder in folders for file in folder.glob("libcupti.so*")})
