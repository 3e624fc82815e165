"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# Here, and not in a directory's own file: ``given`` keeps the profile of the moment in which its module is imported. How
# long an example takes, and how long it takes to make one, is the machine's affair.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
