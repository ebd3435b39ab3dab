import numpy as np


class SmallFirst:
    """Fewest pods first; a gang that has waited for a day comes before all others."""

    name = "small-first"

    def key(self, gangs, now):
        return np.where(now - gangs.created > 86400, -1, gangs.size)
