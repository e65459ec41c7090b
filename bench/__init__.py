"""Measurements of taskq on the machine at hand: ``python -m bench``, or ``make bench``.

Every budget is a ratio of two figures taken in one run on one server, so that it means the same on
a fast and on a slow machine; microseconds and jobs per second stand beside for information.
"""
