"""``lagom report`` and the page of ``lagom profile``: text, pages, pictures. Nothing here measures or decides."""
