# SPDX-License-Identifier: Apache-2.0
"""Virtual ranks: real processes that load the real plugin and call it as NCCL does, on a simulated clock.

README.md says what is imitated and what is not. Imports are left to the modules: a rank process should start quickly.
"""
