"""Finds the two stations that are closest to each other, by all that their sensors have measured."""
import numpy as np


def read(stations, sensors):
    return np.random.default_rng(1).normal(size=(stations, sensors))


def distances(readings):
    return abs(readings[:, None] - readings).sum(axis=2)


def closest(table):
    np.fill_diagonal(table, np.inf)
    return np.unravel_index(table.argmin(), table.shape)


first, second = closest(distances(read(800, 12)))
print(f"stations {first} and {second}")
