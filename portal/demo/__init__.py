"""The demonstration: two teams on a simulated fleet, with a month of evidence behind them.

Only *evidence* is invented (pods, capacity, watch spans), and it is marked ``demo``. Allocations, usage and bills are
made from it by the product's own code, and everything from now on is watched like any other fleet.
"""
