"""What ``lagom run`` does around a job: its environment, its controller process, its command, and what is said of it.

Nothing here imports :mod:`lagom.cli`, which parses the options and calls :func:`lagom.launch.run_job.run_job`.
"""
