# SPDX-License-Identifier: Apache-2.0
"""``python -m lagom.demo.job``, whose job is one that ends when it is asked to."""

from __future__ import annotations

import subprocess
import sys

#: A launcher that passes SIGTERM on and a process group that gets it too: signals come while one is being handled.
SIGNALS_AT_ONCE = """
import os, subprocess
from types import SimpleNamespace
from lagom.demo import job

class Job:
    def __init__(self, *_): pass
    def __enter__(self):
        signals = f"for at in {{1..20000}}; do kill -TERM {os.getpid()}; done"
        self.sender = subprocess.Popen(["bash", "-c", signals])
        return self
    def __exit__(self, *_): pass
    def running(self): return True
    def stop(self): self.sender.wait()
    def finish(self): return [SimpleNamespace(lengths=(1e6,))]

job.VirtualJob, job._spec = Job, lambda wanted: None
for _ in range(12):  # with a lock in the handler, one in three came to a standstill
    job.main([])
"""


def test_signals_that_come_at_once_end_the_job() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS_AT_ONCE], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, 12 * "iteration 0: 1.000 ms\n"), done.stderr
