"""For every test: Hypothesis judges what code does, never how long it takes, because the machine may be busy; and no
job replays what an earlier one left in the user's cache, or leaves something there. A test that starts `lagom` without
the `LAGOM_` variables of this process sets LAGOM_CACHE itself."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("lagom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lagom")
os.environ["LAGOM_CACHE"] = "off"
