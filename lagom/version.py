"""The release of lagom. The plugin says the same (`tuner_plugin/plugin.h`)."""

__version__ = "0.1.0"
