# SPDX-License-Identifier: Apache-2.0
"""The first import of the process that ranks are forked from: what lagom.parallel brings with it."""

import sys

import lagom.parallel

assert lagom.parallel
HAS_DTENSOR = "torch.distributed.tensor.parallel" in sys.modules
