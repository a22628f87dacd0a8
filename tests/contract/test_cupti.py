# SPDX-License-Identifier: Apache-2.0
"""What we say of CUPTI against NVIDIA's own headers and libraries, of CUDA 12 and 13.

The wheels come from the package index, or from the folder named by CUPTI_WHEELS (unpacked). Without either this is
skipped, and says so. No GPU is needed: the libraries are loaded and their symbols looked up by our own loader.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {12: "nvidia-cuda-cupti-cu12==12.8.*", 13: "nvidia-cuda-cupti==13.0.*"}
#: Kernel records from CUPTI 12.0 on, by the header that has them.
KERNEL_RECORDS = {12: (7, 8, 9), 13: (8, 9, 10)}
#: And records of copies between GPUs.
COPY_RECORDS = {12: (3, 4), 13: (4,)}

#: NVIDIA's headers ask for CUDA's; of those only the names of some types matter here.
STAND_INS = {
    "cuda.h": """
        #pragma once
        #include <stddef.h>
        #include <stdint.h>
        typedef struct a *CUcontext; typedef struct b *CUstream; typedef struct c *CUgraph;
        typedef struct d *CUfunction; typedef struct e *CUmodule; typedef struct f *CUarray;
        typedef struct g *CUevent; typedef struct h *CUgraphNode; typedef struct i *CUgraphExec;
        typedef unsigned long long CUdeviceptr;
        typedef int CUresult, CUdevice, CUsharedconfig, CUfunc_cache, CUgraphNodeType;
        typedef int CUstreamAttrID, CUdevice_attribute;
        typedef struct { char bytes[16]; } CUuuid;
        typedef struct { char bytes[64]; } CUstreamAttrValue;
        typedef struct { void *base; size_t bytes; float ratio; int hit, miss; } CUaccessPolicyWindow;
    """,
    "builtin_types.h": "",
    "cuda_runtime_api.h": "",
}

CHECKS = """
#include <cupti_activity.h>
#include "timeline/cupti_abi.h"
#define SAME(ours, theirs) _Static_assert((ours) == (theirs), #theirs)
#define FIELD_OF(own, record, ours, theirs) \\
    SAME(offsetof(struct own, ours), offsetof(record, theirs)); \\
    SAME(sizeof(((struct own *)0)->ours), sizeof(((record *)0)->theirs))
#define FIELD(record, ours, theirs) FIELD_OF(cupti_kernel, record, ours, theirs)
#define COPY_FIELD(record, ours, theirs) FIELD_OF(cupti_peer_copy, record, ours, theirs)
#define COPY(record) \\
    COPY_FIELD(record, kind, kind); COPY_FIELD(record, bytes, bytes); COPY_FIELD(record, start, start); \\
    COPY_FIELD(record, end, end); COPY_FIELD(record, device, deviceId); COPY_FIELD(record, context, contextId); \\
    COPY_FIELD(record, stream, streamId); COPY_FIELD(record, source, srcDeviceId); \\
    COPY_FIELD(record, destination, dstDeviceId)
#define KERNEL(record) \\
    FIELD(record, kind, kind); FIELD(record, start, start); FIELD(record, end, end); \\
    FIELD(record, device, deviceId); FIELD(record, context, contextId); FIELD(record, stream, streamId); \\
    SAME(offsetof(struct cupti_kernel, grid), offsetof(record, gridX)); \\
    SAME(offsetof(struct cupti_kernel, grid) + 8, offsetof(record, gridZ)); \\
    SAME(offsetof(struct cupti_kernel, block), offsetof(record, blockX)); \\
    SAME(offsetof(struct cupti_kernel, block) + 8, offsetof(record, blockZ)); \\
    FIELD(record, correlation, correlationId); FIELD(record, name, name); \\
    FIELD(record, graph_node, graphNodeId)
@RECORDS@
SAME(offsetof(struct cupti_external, external_kind), offsetof(CUpti_ActivityExternalCorrelation, externalKind));
SAME(offsetof(struct cupti_external, id), offsetof(CUpti_ActivityExternalCorrelation, externalId));
SAME(offsetof(struct cupti_external, correlation), offsetof(CUpti_ActivityExternalCorrelation, correlationId));
SAME(sizeof(struct cupti_external), sizeof(CUpti_ActivityExternalCorrelation));
SAME((int)CUPTI_RESULT_SUCCESS, (int)CUPTI_SUCCESS);
SAME((int)CUPTI_RESULT_MAX_LIMIT_REACHED, (int)CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME((int)CUPTI_KIND_CONCURRENT_KERNEL, (int)CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME((int)CUPTI_KIND_PEER_COPY, (int)CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME((int)CUPTI_KIND_EXTERNAL_CORRELATION, (int)CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
SAME((int)CUPTI_EXTERNAL_CUSTOM2, (int)CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2);
SAME((int)CUPTI_FLUSH_FORCED, (int)CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME((int)CUPTI_BUFFER_ALIGNMENT, (int)ACTIVITY_RECORD_ALIGNMENT);
_Static_assert(__builtin_types_compatible_p(__typeof__(&cuptiActivityEnable), CUptiResult (*)(CUpti_ActivityKind)), "");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cuptiActivityFlushAll), CUptiResult (*)(uint32_t)), "");
"""

LOADER = """
#include <dlfcn.h>
#include <stdio.h>
#include "timeline/cupti_loader.h"
int main(int argc, char **argv)
{
    struct lagom_cupti cupti;
    char reason[256] = "";
    if (argc < 2 || dlopen(argv[1], RTLD_LAZY) == NULL) {
        printf("%s\\n", dlerror());
        return 2;
    }
    if (!lagom_cupti_open(&cupti, reason, sizeof(reason))) {
        printf("%s\\n", reason);
        return 1;
    }
    printf("%u %s\\n", cupti.version, cupti.path);
    return 0;
}
"""


@pytest.fixture(scope="module", params=PACKAGES)
def cupti(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, Path]:
    """(CUDA major, folder of headers, library file)."""
    major = request.param
    at = Path(os.environ["CUPTI_WHEELS"]) if "CUPTI_WHEELS" in os.environ else _download(major, tmp_path_factory)
    library = next(at.rglob(f"libcupti.so.{major}"), None)
    if library is None:
        pytest.skip(f"no libcupti.so.{major} under {at}")
    return major, library.parent.parent / "include", library


def _download(major: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"cupti{major}")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--retries", "0"]
    command = [*pip, "--timeout", "20", "--dest", str(folder), PACKAGES[major]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the package index does not answer")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"{PACKAGES[major]} cannot be had: {' '.join(done.stderr.split()[-12:])}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder)
    return folder


def test_records_and_numbers_are_nvidias(cupti: tuple[int, Path, Path], tmp_path: Path) -> None:
    major, headers, _ = cupti
    for name, text in STAND_INS.items():
        (tmp_path / name).write_text(text)
    kernels = [f"KERNEL(CUpti_ActivityKernel{number});" for number in KERNEL_RECORDS[major]]
    copies = [f"COPY(CUpti_ActivityMemcpyPtoP{number});" for number in COPY_RECORDS[major]]
    records = "\n".join(kernels + copies)
    source = tmp_path / "checks.c"
    source.write_text(CHECKS.replace("@RECORDS@", records))
    command = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{tmp_path}", f"-I{headers}", f"-I{ROOT / 'csrc'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_our_loader_finds_what_is_loaded_and_all_its_symbols(cupti: tuple[int, Path, Path], tmp_path: Path) -> None:
    major, _, library = cupti
    source, program = tmp_path / "loader.c", tmp_path / "loader"
    source.write_text(LOADER)
    command = ["gcc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT / 'csrc'}", str(source)]
    parts = [str(ROOT / "csrc" / part) for part in ("timeline/cupti_loader.c", "shm/ownership.c")]
    subprocess.run([*command, *parts, "-ldl", "-o", str(program)], check=True)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([program, str(library)], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    version, path = done.stdout.split()
    assert Path(path).resolve() == library.resolve()
    assert int(version) == 26 if major == 12 else 130000 <= int(version) < 140000
