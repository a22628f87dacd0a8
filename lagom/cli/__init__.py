# SPDX-License-Identifier: Apache-2.0
"""The command line: one file a command, put together in :mod:`lagom.cli.main`.

A command file imports at its top only what its options need; the rest is imported when the command runs, so that
``lagom --help`` answers at once. What ``--help`` says beyond the options (examples, files, exit codes, environment) is
text in ``pages/``, the epilog of the command; what the Tab key offers is in :mod:`lagom.cli.complete`.
"""
