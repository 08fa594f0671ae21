"""Measurements against the budgets: how fast, how soon, how much memory. Figures are printed, never asserted."""
