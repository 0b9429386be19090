"""Property tests alike: the same examples each time, and no limit on how long a busy machine takes over one.

`--hypothesis-profile=random` draws other examples, by `--hypothesis-seed` where one is given.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("suite"), derandomize=False)
settings.load_profile("suite")
