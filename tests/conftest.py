# SPDX-License-Identifier: Apache-2.0
"""For every test: Hypothesis judges what code does, never how long it takes, because the machine may be busy, and takes
the same examples in every run (`pytest --hypothesis-profile random` takes others; what it finds becomes an
`@example`); and no job replays what an earlier one left in the user's cache, or leaves something there. A test that
starts `lagom` without the `LAGOM_` variables of this process sets LAGOM_CACHE itself."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.processor_time import ProcessorTime

# Said outright: where CI is set, Hypothesis itself makes its default derandomized.
settings.register_profile("random", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("lagom", settings.get_profile("random"), derandomize=True)
settings.load_profile("lagom")
os.environ["LAGOM_CACHE"] = "off"

if hasattr(providers, "_get_local_constants"):
    # Numbers in the modules that are loaded at this moment are tried too, and which ones are, depends on the tests that
    # this worker has run before.
    _local_constants = providers._get_local_constants
    providers._get_local_constants = lambda: (
        providers.Constants() if settings.default.derandomize else _local_constants()
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTime())
    if config.pluginmanager.hasplugin("xdist"):
        from tests.one_worker import Distribution

        config.pluginmanager.register(Distribution())
