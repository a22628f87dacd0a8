# SPDX-License-Identifier: Apache-2.0
"""What ``lagom run`` does around a job: environment, controller process, command, and the lines that it prints.

Nothing here imports :mod:`lagom.cli`, which parses the options and calls :func:`lagom.launch.run_job.run_job`.
"""
