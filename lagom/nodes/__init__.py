# SPDX-License-Identifier: Apache-2.0
"""What the launchers of several nodes agree on before ranks are started, and how they run them in lock-step."""
