# SPDX-License-Identifier: Apache-2.0
"""What the plugin says it is ("loaded v0.1.0") is what the package is."""

from __future__ import annotations

import re
from pathlib import Path

import lagom

ROOT = Path(__file__).resolve().parents[3]


def test_the_plugin_and_the_package_are_one_version() -> None:
    header = (ROOT / "tuner_plugin" / "plugin.h").read_text()
    found = re.search(r'#define LAGOM_VERSION "(.+)"', header)
    assert found is not None
    assert found.group(1) == lagom.__version__
