"""For every test: Hypothesis judges what code does, never how long it takes, because the machine may be busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("lagom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lagom")
