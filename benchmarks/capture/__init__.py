# SPDX-License-Identifier: Apache-2.0
"""Kernel capture on GPUs: is it correct, what does it cost, does it work together with torch.profiler?"""
