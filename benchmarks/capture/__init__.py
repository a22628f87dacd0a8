"""Kernel capture on GPUs: is it right, what does it cost, does it live beside torch.profiler?"""
