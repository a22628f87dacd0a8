# SPDX-License-Identifier: Apache-2.0
"""``lagom report`` and the page of ``lagom profile``: text, pages, pictures. Nothing here measures or decides."""
