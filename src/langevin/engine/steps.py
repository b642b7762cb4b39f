"""The steps of a run as device and books both see them: computed in float64, rounded once to float32."""

import numpy as np

from langevin.schedules import Schedule

Array = np.ndarray


class Steps:
    """delta_m and omega_m = delta_m^p of all schedule settings, settings on axis 0."""

    def __init__(self, schedule: Schedule, weight_power: float) -> None:
        self._schedule, self._power = schedule, weight_power
        self.settings = int(np.prod(schedule.batch_shape))

    def rounded(self, m_first: int, m_last: int) -> tuple[Array, Array]:
        """delta_m and omega_m for a range of m, float32 of shape (settings, steps)."""
        delta = self._schedule.delta(np.arange(m_first, m_last + 1)).reshape(self.settings, -1)
        omega = delta if self._power == 1.0 else delta**self._power
        return delta.astype(np.float32), omega.astype(np.float32)

    def sums(self, m_first: int, m_last: int, rows: int) -> dict[str, Array]:
        """Sums of the rounded delta, delta^2 and omega over `rows` rows of equal length, each (rows, settings)."""
        delta, omega = (
            steps.astype(np.float64).reshape(self.settings, rows, -1) for steps in self.rounded(m_first, m_last)
        )
        return {name: s.sum(axis=-1).T for name, s in (("delta", delta), ("delta2", delta**2), ("omega", omega))}
