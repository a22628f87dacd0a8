# SPDX-License-Identifier: Apache-2.0
"""What the paper (arXiv 2602.20656) says, section by section. Its figures carry no readable values; these are from its
text."""

FIG3_COMPUTE_RATIO = 1.302  # 3.2: NC=32 over NC=16, communication "nearly identical"
FSDP = (1.10, 1.33)  # 4.2, Fig. 7a: over NCCL, both clusters
TP = (1.08, 1.16)  # 4.2, Fig. 7b
EP = (1.07, 1.08)  # 4.2, Fig. 7b
PATTERN_1 = 1.35  # 4.3, Fig. 8a: AllGather from NC=8, C=2 MB to NC=2, C=684 KB
PATTERN_1_CONFIG = (2, 684 << 10)
PATTERN_1_AUTOCCL = 0.87  # AutoCCL's NC=61
PATTERN_1_AUTOCCL_CHANNELS = 61
PATTERN_2 = 1.43  # 4.3, Fig. 8b: ReduceScatter from NC=8, C=2 MB to NC=4, C=1366 KB
PATTERN_2_CONFIG = (4, 1366 << 10)
CONFIGS_TWO = {"lagom": 33, "autoccl": 16}  # 4.4, Fig. 8c
A40_SMS = 84
