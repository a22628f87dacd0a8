# SPDX-License-Identifier: Apache-2.0
"""Whether a saved config would be replayed on this machine, asked of the plugin's own code."""

from __future__ import annotations

from pathlib import Path

from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.doctor import config_fit


def test_the_nccl_of_another_version_is_refused(tmp_path: Path) -> None:
    wanted = Fingerprint(nccl_version=23007)
    file = tmp_path / "p.lagom"
    save_config(SavedConfig(wanted, (Section(8, 1, 0),)), file)
    assert "made for NCCL 2.30.7, this job runs NCCL 2.28.9" in config_fit.fit(file, wanted, {}, nccl=22809).refusal
    assert config_fit.fit(file, wanted, {}, nccl=23007).refusal == ""
    assert config_fit.fit(file, wanted, {}, nccl=0).unknown == ("the NCCL it loads",)


def test_what_a_simulated_job_found_fits_a_simulated_job_alone(tmp_path: Path) -> None:
    wanted = Fingerprint(simulated=True)
    file = tmp_path / "p.lagom"
    save_config(SavedConfig(wanted, (Section(8, 1, 0),)), file)
    assert config_fit.fit(file, wanted, {}).refusal == "made in a simulated job, this job is real"
    assert config_fit.fit(file, wanted, {"LAGOM_CLOCK": "simulated"}).refusal == ""
