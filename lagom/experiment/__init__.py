# SPDX-License-Identifier: Apache-2.0
"""One process of the user's job as an experiment: started with an environment, watched, and put on record."""
