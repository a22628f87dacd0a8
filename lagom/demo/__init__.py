# SPDX-License-Identifier: Apache-2.0
"""``lagom demo``, and the jobs of virtual ranks that it and the tests start (``job.py``)."""
